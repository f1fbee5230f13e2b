"""Responses that are kept for a while: what a later request refers to by an id is put in its place.

They are kept as originals of compressed texts are: encrypted, for the keys of one project, bounded together with those.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from billing.caller import Caller
from billing.errors import UnknownOriginal
from models.errors import InvalidField
from serve.dialects.openai.responses.conversation import NOT_STORED, Loc
from serve.originals.originals import Original, Originals

# An item's id has its response's, and what number it has there.
_ITEM = re.compile(r"(?:msg|rs|fc)_([0-9a-f]{32})_\d{1,4}")
_RESPONSE = re.compile(r"resp_[0-9a-f]{32}")
# Each has the whole conversation before it, so one is enough for most requests.
MOST_READ = 16
# A longer one is not kept; and what one request may have read and put in its place, all references together. Without
# it a few bytes could stand for gigabytes.
MOST_KEPT_CHARACTERS = 4 * 2**20
MOST_CHARACTERS = 8 * 2**20


@dataclass(frozen=True, slots=True)
class PlacedItem:
    """An item of the input, and where in the body it stands, or what refers to it."""

    item: Mapping[str, Any]
    loc: Loc


@dataclass(slots=True)
class _Reading:
    """The responses that one request refers to. Items are found by their ids in any that was read."""

    caller: Caller
    read: set[str] = field(default_factory=set)
    items: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    left: int = MOST_CHARACTERS

    def take(self, characters: int, loc: Loc) -> None:
        """Raises `InvalidField` for more than a request may refer to."""
        self.left -= characters
        if self.left < 0:
            message = f"what a request refers to may have {MOST_CHARACTERS} characters together"
            raise InvalidField(loc, message, kind="too_long")

    def put(self, id_: str, loc: Loc) -> Mapping[str, Any]:
        """A known item, in the place of a reference to it."""
        if id_ not in self.sizes:
            self.sizes[id_] = len(json.dumps(self.items[id_]))
        self.take(self.sizes[id_], loc)
        return self.items[id_]


class StoredResponses:
    """`store_s`: how long each is kept; 0: none is."""

    def __init__(self, originals: Originals, *, store_s: int) -> None:
        self._originals = originals
        self.store_s = store_s

    async def keep(
        self, caller: Caller, items: Sequence[Mapping[str, Any]], response: Mapping[str, Any]
    ) -> bool:
        """Keep a conversation and what was answered to it. Whether that was done: it fails nothing."""
        id_ = str(response.get("id"))
        text = json.dumps({"input": items, "output": response.get("output", [])})
        if len(text) > MOST_KEPT_CHARACTERS or not _RESPONSE.fullmatch(id_):
            return False
        kept = await self._originals.keep(caller, [Original(id_, text)], retain_s=self.store_s)
        return id_ in kept.until

    async def expanded(
        self, caller: Caller, items: Sequence[Mapping[str, Any]], previous: str | None
    ) -> list[PlacedItem]:
        """The items, with those that are referred to, after the conversation of the previous response.

        Raises `InvalidField` for what is not stored, and `LedgerUnavailable`.
        """
        reading = _Reading(caller)
        before = []
        if previous is not None:
            loc: Loc = ("previous_response_id",)
            before = [PlacedItem(item, loc) for item in await self._read(reading, previous, loc)]
        # The last one first: it is likely to have those before it.
        placed = list(enumerate(items))
        found = [await self._found(reading, item, ("input", at)) for at, item in reversed(placed)]
        return [*before, *reversed(found)]

    async def _found(self, reading: _Reading, item: Mapping[str, Any], loc: Loc) -> PlacedItem:
        id_ = item.get("id")
        if item.get("type") != "item_reference" or not isinstance(id_, str):
            return PlacedItem(item, loc)
        named = _ITEM.fullmatch(id_)
        if id_ not in reading.items and named is not None:
            await self._read(reading, f"resp_{named[1]}", loc)
        if id_ not in reading.items:
            raise InvalidField(loc, f"the item {id_[:64]} {NOT_STORED}", kind="not_stored")
        return PlacedItem(reading.put(id_, loc), loc)

    async def _read(self, reading: _Reading, response_id: str, loc: Loc) -> list[Mapping[str, Any]]:
        if len(reading.read) == MOST_READ:
            raise InvalidField(loc, f"a request may refer to {MOST_READ} responses", kind="too_long")
        reading.read.add(response_id)
        refusal = InvalidField(loc, f"the response {response_id[:64]} {NOT_STORED}", kind="not_stored")
        if not _RESPONSE.fullmatch(response_id):
            raise refusal
        try:
            text = (await self._originals.read(reading.caller, response_id)).text
        except UnknownOriginal:
            raise refusal from None
        reading.take(len(text), loc)
        stored = json.loads(text)
        items: list[Mapping[str, Any]] = [*stored["input"], *stored["output"]]
        reading.items |= {item["id"]: item for item in items if isinstance(item.get("id"), str)}
        return items


def refers(items: Sequence[Mapping[str, Any]], previous: str | None) -> bool:
    """True if a request refers to what is stored."""
    return previous is not None or any(item.get("type") == "item_reference" for item in items)
