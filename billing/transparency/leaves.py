"""Leaves of the transparency log: what each commits to, as the two texts whose hashes it joins.

The record is what is known when a request ends, and is promised in its reply. The posting is what the ledger adds when
it takes the event, which may be later: the month, what was written off, the number of the price list. An entry is the
SHA-256 over the SHA-256 of both. It tells nothing to whoever has not the texts: each record names an id with 80 random
bits. All other columns of the row are in one of both texts, but for an adjustment's `actor` and an event's `budgets`,
`person` and `tags`.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

POSTED = ("month", "pricing_version", "written_off_nano_usd")
_UNRECORDED = frozenset({*POSTED, "actor", "budgets", "person", "tags"})
# Made once: this is done for each request that was paid for.
_json = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
# Their text is the customer's own copy; the leaf has its hash.
_HASHED = frozenset({"receipt"})


@dataclass(frozen=True, slots=True)
class Leaf:
    """Both texts are JSON with sorted names, as they are hashed."""

    record: str
    posting: str

    @property
    def entry(self) -> bytes:
        return hashlib.sha256(digest(self.record) + digest(self.posting)).digest()


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def leaf(row: Mapping[str, Any]) -> Leaf:
    """Of a row of `usage_events` or `adjustments`, by column."""
    return Leaf(record(row), _json({name: row[name] for name in POSTED if row.get(name) is not None}))


def record(row: Mapping[str, Any]) -> str:
    """The text that a reply's promise is of."""
    recorded: dict[str, Any] = {}
    for name, value in row.items():
        if value is None or name in _UNRECORDED:
            continue
        if name in _HASHED:
            recorded[f"{name}_sha256"] = digest(value).hex()
        else:
            recorded[name] = _moment(value) if isinstance(value, datetime) else value
    return _json(recorded)


def _moment(value: datetime) -> str:
    """In UTC, to the microsecond, with a Z at the end."""
    return f"{value.astimezone(UTC).isoformat(timespec='microseconds')[: -len('+00:00')]}Z"
