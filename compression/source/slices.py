"""Stretches of a text: the output is made of these and of nothing else."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple


class Slice(NamedTuple):
    """`source[start:end]`, in code points."""

    start: int
    end: int


def merged(slices: Sequence[Slice]) -> list[Slice]:
    """Join slices that touch, and leave out the empty ones."""
    result: list[Slice] = []
    for piece in slices:
        if piece.start == piece.end:
            continue
        if result and result[-1].end == piece.start:
            result[-1] = Slice(result[-1].start, piece.end)
        else:
            result.append(piece)
    return result


def join(source: str, slices: Sequence[Slice]) -> str:
    return "".join([source[start:end] for start, end in slices])


def kept_parts(slices: Sequence[Slice], start: int, end: int) -> list[Slice]:
    """What of `[start, end)` is in `slices`, which are in source order."""
    at = max(0, bisect_left(slices, (start, start)) - 1)
    parts = []
    while at < len(slices) and slices[at].start < end:
        low, high = max(start, slices[at].start), min(end, slices[at].end)
        if low < high:
            parts.append(Slice(low, high))
        at += 1
    return parts
