"""Where what was kept stands in the input: in characters, and in the bytes of its UTF-8."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def kept_fields(text: str, kept: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    """The contract's `kept`, in the order of `kept`; its offsets are code points of `text`."""
    at_byte = _bytes_at(text, kept)
    return [
        {"start": start, "end": end, "bytes": {"start": at_byte[start], "end": at_byte[end]}}
        for start, end in kept
    ]


def _bytes_at(text: str, kept: Sequence[tuple[int, int]]) -> dict[int, int]:
    """How many bytes the text before each end of a span takes. The text is read once."""
    found: dict[int, int] = {}
    before = size = 0
    for at in sorted({at for span in kept for at in span}):
        size += len(text[before:at].encode())
        found[at] = size
        before = at
    return found
