"""Shows where something was left out: a mark between kept pieces, only where it breaks nothing."""

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property

from compression.choosing.assembly import Assembler, Slice
from compression.source.units import Segmentation

MARK = "[…]"
# Inside a JSON string a line end is written out.
_SPACE = re.compile(r"(?:\s|\\[nrt])*+")
# Of the frames around a gap, the innermost of these kinds says whether the gap is in text or in JSON.
_DECIDING = frozenset({"json", "string", "message"})
_JSON_UNITS = frozenset({"json_member", "bracket"})

Render = Callable[[Sequence[Slice]], str]


def renderer(text: Segmentation, *, mark_gaps: bool) -> Render:
    """Makes an output from slices of the source: with a mark, if asked for, where a whole unit was dropped."""
    if mark_gaps:
        return GapMarker(text).render
    return text.raw


class GapMarker:
    """Knows, for one segmentation, where a mark is allowed and what separates it from its neighbours.

    Of JSON only the insides of strings take one. A mark is separated from the text before it as what was left out was.
    """

    def __init__(self, text: Segmentation) -> None:
        self._text = text
        self._source = text.source
        self._units = text.units

    def render(self, slices: Sequence[Slice]) -> str:
        """The slices and the marks between them."""
        marks = self.marks(slices)
        written = marks if self._text.origin is None else {at: _escaped(mark) for at, mark in marks.items()}
        return "".join(
            written.get(number, "") + self._text.raw([piece]) for number, piece in enumerate(slices)
        )

    def marks(self, slices: Sequence[Slice]) -> dict[int, str]:
        """By the number of the slice after it: a mark with the white space that separates it."""
        kept = [self._units_in(piece) for piece in slices]
        every = sorted({unit for first, last in kept for unit in range(first, last + 1)})
        marks: dict[int, str] = {}
        before, place = -1, 0
        for number, (first, last) in enumerate(kept):
            if first > last:  # A separator alone: what it separates from comes next.
                continue
            if before >= 0 and self._is_gap(before, first, every):
                lead = (
                    "" if slices[place - 1].end > self._units[before].end else self._space_before(before + 1)
                )
                is_apart = place < number or slices[number].start < self._units[first].start
                marks[place] = lead + MARK + ("" if is_apart else self._space_before(first))
            before, place = last, number + 1
        return marks

    @cached_property
    def _starts(self) -> list[int]:
        return [unit.start for unit in self._units]

    @cached_property
    def _ends(self) -> list[int]:
        return [unit.end for unit in self._units]

    @cached_property
    def _framed_by(self) -> dict[int, int]:
        """The frame that a unit is an end of, or a part between its ends."""
        return {unit: number for number, frame in enumerate(self._text.frames) for unit in frame.ends}

    @cached_property
    def _assembler(self) -> Assembler:
        return Assembler(self._text)

    def _units_in(self, piece: Slice) -> tuple[int, int]:
        """The first and the last unit of which the slice has a part; the first comes after the last where none is."""
        return bisect_right(self._ends, piece.start), bisect_left(self._starts, piece.end) - 1

    def _is_gap(self, before: int, after: int, kept: Sequence[int]) -> bool:
        """Whether a unit between the two was dropped and a mark is allowed there."""
        between = bisect_left(kept, after) - bisect_right(kept, before)
        return after - before - 1 > between and self._takes_a_mark(before, after)

    def _takes_a_mark(self, before: int, after: int) -> bool:
        """False inside JSON, and between two values of it, as in JSON Lines; true inside its strings."""
        origin = self._text.origin
        if origin is not None and not origin.is_in_text(self._units[before].end, self._units[after].start):
            return False
        number = self._framed_by.get(before, self._units[before].frame)
        while number is not None:
            frame = self._text.frames[number]
            is_around = frame.open <= before and (frame.close is None or frame.close >= after)
            if is_around and frame.kind in _DECIDING:
                return frame.kind != "json"
            number = frame.parent
        return not {self._units[before].kind, self._units[after].kind} <= _JSON_UNITS

    def _space_before(self, unit: int) -> str:
        start, end = self._assembler.gap_before(unit)
        gap = self._source[start:end]
        return gap if _SPACE.fullmatch(gap) else " "


def _escaped(mark: str) -> str:
    """As it is written inside a JSON string."""
    return json.dumps(mark, ensure_ascii=False)[1:-1]
