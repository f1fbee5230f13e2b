"""Values of a chat template's names and expressions while its growth is read: sizes, not texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# No role that a template knows is longer.
ROLE_BYTES = 32


class Unproven(Exception):
    """The template does something of which no bound is known."""


class _Word:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


# Anything at all; and a name that no request defines, which prints nothing and counts as false.
UNKNOWN, ABSENT = _Word("UNKNOWN"), _Word("ABSENT")


@dataclass(frozen=True, slots=True)
class Known:
    """A literal value in the template."""

    value: Any


@dataclass(frozen=True, slots=True)
class Text:
    """A text of at most `copies` times the bytes of `owner`, so many for each part of its content, and `fixed`."""

    owner: object
    copies: int = 0
    per_part: int = 0
    fixed: int = 0

    @property
    def size(self) -> int:
        return self.copies + self.per_part + self.fixed

    def times(self, factor: int, more: int) -> Text:
        return Text(self.owner, self.copies * factor, self.per_part * factor, self.fixed * factor + more)


@dataclass(frozen=True, slots=True)
class Messages:
    """The conversation, or some of it. With `parts`, contents are lists of text parts, and else strings."""

    parts: bool


@dataclass(frozen=True, slots=True)
class Message:
    owner: object
    parts: bool


@dataclass(frozen=True, slots=True)
class Content:
    """A message's list of text parts."""

    owner: object


@dataclass(frozen=True, slots=True)
class Part:
    owner: object


@dataclass(frozen=True, slots=True)
class Pieces:
    """A text that was split: each piece is no longer than the whole."""

    text: Text


def item_of(owner: Any, key: Any) -> Any:
    """`owner.key` or `owner[key]`. One message of the conversation, taken by its index, represents all of them."""
    if owner is ABSENT:
        return ABSENT
    if isinstance(owner, Messages):
        return owner if isinstance(key, slice) else Message("all", owner.parts)
    if isinstance(owner, Message):
        return _of_message(owner, key)
    if isinstance(owner, Part):
        if key in ("text", "content"):
            return Text(owner.owner, copies=1)
        return Known("text") if key == "type" else ABSENT
    if isinstance(owner, Pieces):
        return owner.text if not isinstance(key, slice) else owner
    if isinstance(owner, Text):
        return owner if isinstance(key, (int, slice)) else UNKNOWN
    return UNKNOWN


def _of_message(message: Message, key: Any) -> Any:
    if key == "role":
        return Text(None, fixed=ROLE_BYTES)
    if key == "content":
        return Content(message.owner) if message.parts else Text(message.owner, copies=1)
    # A plain request's messages have nothing else; a dictionary has its methods.
    return ABSENT if isinstance(key, str) and not hasattr(dict, key) else UNKNOWN


def printed(value: Any) -> Text:
    """The value as it prints. Raises `Unproven` where that is not known."""
    if isinstance(value, Text):
        return value
    if isinstance(value, Known):
        return Text(None, fixed=len(str(value.value).encode()))
    if value is ABSENT:
        return Text(None)
    raise Unproven("something unknown is printed")


def added(texts: Sequence[Text]) -> Text:
    """One text after another."""
    owners = {text.owner for text in texts if text.copies or text.per_part}
    if len(owners) > 1:
        raise Unproven("the texts of several messages in one")
    return Text(
        next(iter(owners), None),
        sum(text.copies for text in texts),
        sum(text.per_part for text in texts),
        sum(text.fixed for text in texts),
    )


def joined(values: Sequence[Any]) -> Any:
    """Any one of these."""
    first = values[0] if values else ABSENT
    if all(value == first for value in values):
        return first
    texts = [_as_text(value) for value in values]
    if any(text is None for text in texts):
        return UNKNOWN
    found = [text for text in texts if text is not None]
    owners = {text.owner for text in found if text.copies or text.per_part}
    if len(owners) > 1:
        return UNKNOWN
    return Text(
        next(iter(owners), None),
        max(text.copies for text in found),
        max(text.per_part for text in found),
        max(text.fixed for text in found),
    )


def _as_text(value: Any) -> Text | None:
    if isinstance(value, Text):
        return value
    if value is ABSENT:
        return Text(None)
    if isinstance(value, Known) and isinstance(value.value, str):
        return Text(None, fixed=len(value.value.encode()))
    return None


def truth(value: Any) -> bool | None:
    """The truth of a value, or None where that is not known."""
    if isinstance(value, Known):
        return bool(value.value)
    if value is ABSENT:
        return False
    if isinstance(value, (Message, Part)):
        return True
    return None


SAME = (1, 0)
# U+0390 is two bytes and three letters of two in capitals; no letter grows more.
OTHER_CASE = (3, 0)
# As JSON, a control character is six bytes; the quotes are two.
AS_JSON = (6, 2)

FILTERS: Mapping[str, tuple[int, int]] = {
    "trim": SAME,
    "string": SAME,
    "safe": SAME,
    "upper": OTHER_CASE,
    "lower": OTHER_CASE,
    "capitalize": OTHER_CASE,
    "title": OTHER_CASE,
    "tojson": AS_JSON,
}
METHODS: Mapping[str, tuple[int, int]] = {
    "strip": SAME,
    "lstrip": SAME,
    "rstrip": SAME,
    "removeprefix": SAME,
    "removesuffix": SAME,
    "upper": OTHER_CASE,
    "lower": OTHER_CASE,
    "capitalize": OTHER_CASE,
    "title": OTHER_CASE,
}
