"""Positions of the parts kept: in the characters and bytes of an input, or in the texts of messages."""

from collections.abc import Sequence
from typing import Any

from compression.conversation import spans_by_message
from compression.source.units import Slice

KeptFields = list[dict[str, Any]]


def kept_fields(text: str, kept: Sequence[Slice]) -> KeptFields:
    """The contract's `kept`, in the order of `kept`; its offsets are code points of `text`."""
    at_byte = _bytes_at(text, kept)
    return [
        {"start": start, "end": end, "bytes": {"start": at_byte[start], "end": at_byte[end]}}
        for start, end in kept
    ]


def kept_of_messages(text: str, kept: Sequence[Slice]) -> KeptFields:
    """The contract's `kept` of messages whose JSON is `text`: offsets are code points of a content or text part."""
    return [
        {
            "message": message.index,
            "part": part.path[0] if part.path else None,
            "inner": part.path[1] if len(part.path) > 1 else None,
            "start": start,
            "end": end,
        }
        for message in spans_by_message(text, kept)
        for part in message.texts
        for start, end in part.spans
    ]


def _bytes_at(text: str, kept: Sequence[Slice]) -> dict[int, int]:
    """How many bytes the text before each end of a span takes. The text is read once."""
    found: dict[int, int] = {}
    before = size = 0
    for at in sorted({at for span in kept for at in span}):
        size += len(text[before:at].encode())
        found[at] = size
        before = at
    return found
