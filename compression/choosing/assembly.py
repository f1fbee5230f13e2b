"""Output put together from slices of the source alone: separators, the order of documents, and marks of gaps."""

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property

from compression.source.units import DATA, Segmentation, Slice, merged


def movable_groups(text: Segmentation, kept: Sequence[int]) -> list[list[int]]:
    """Kept units as documents, or as paragraphs where there is one document; what a frame spans stays together."""
    by_document = _grouped(text, kept, _joints(text, documents=True))
    return by_document if len(by_document) > 1 else _grouped(text, kept, _joints(text, documents=False))


def _grouped(text: Segmentation, kept: Sequence[int], joints: Sequence[bool]) -> list[list[int]]:
    """Cut at every joint that lies between two kept units."""
    passed = [0]
    for is_joint in joints:
        passed.append(passed[-1] + is_joint)
    groups: list[list[int]] = []
    for position, unit in enumerate(kept):
        if position and passed[unit + 1] == passed[kept[position - 1] + 1]:
            groups[-1].append(unit)
        else:
            groups.append([unit])
    return groups


def _joints(text: Segmentation, *, documents: bool) -> list[bool]:
    """For each unit, whether a new group may begin with it."""
    units = text.units
    joints = [False] * len(units)
    for index in range(1, len(units)):
        before, unit = units[index - 1], units[index]
        changes = before.document != unit.document if documents else before.paragraph != unit.paragraph
        # A heading stays with the paragraph that it heads.
        joints[index] = changes and (documents or before.kind != "heading")
    for frame in text.frames:
        last = frame.close if frame.close is not None else frame.open + 1
        if frame.parent is None:
            for inside in range(frame.open + 1, min(last, len(units) - 1) + 1):
                joints[inside] = False
    return joints


_SHORT_GAP = 4
_LONGEST_GAP = 40


class Assembler:
    """Knows, for one segmentation, the separator between any two kept units."""

    def __init__(self, text: Segmentation) -> None:
        self._text = text
        self._opens = {frame.open for frame in text.frames}
        self._closes = {frame.close for frame in text.frames if frame.close is not None}
        # The JSON between two texts of a message closes one and opens the next.
        inner = [
            unit
            for frame in text.frames
            if frame.kind == "message"
            for unit in frame.also
            if text.units[unit].frame == frame.parent
        ]
        self._opens.update(inner)
        self._closes.update(inner)
        self._paragraph_first: dict[int, int] = {}
        for index, unit in enumerate(text.units):
            self._paragraph_first.setdefault(unit.paragraph, index)

    def gap_before(self, unit: int) -> Slice:
        """The text of the source between `unit` and the one before it; long runs of white space are cut short."""
        return self._gaps[unit]

    @cached_property
    def _gaps(self) -> list[Slice]:
        """Before each unit; computed once, since every selection that is tried uses them."""
        gaps: list[Slice] = []
        end = self._text.units[0].start if self._text.units else 0
        for unit in self._text.units:
            start = unit.start
            gaps.append(Slice(end, start) if start - end <= _SHORT_GAP else self._shortened(end, start))
            end = unit.end
        return gaps

    def pieces(self) -> list[str]:
        """The text of every unit with the separator before it: what keeping it adds to the output."""
        units = self._text.units
        gaps = self._gaps
        if self._text.origin is not None:
            return [
                self._text.raw((gap, Slice(unit.start, unit.end)))
                for gap, unit in zip(gaps, units, strict=True)
            ]
        source = self._text.source
        return [
            source[gap.start : gap.end] + source[unit.start : unit.end]
            for gap, unit in zip(gaps, units, strict=True)
        ]

    def _shortened(self, start: int, end: int) -> Slice:
        gap = self._text.source[start:end]
        if gap.isspace() and (len(gap) > _LONGEST_GAP or gap.count("\n") > 2):
            second = gap.find("\n", gap.find("\n") + 1)
            return Slice(start, start + second + 1 if second >= 0 else start + 1)
        return Slice(start, end)

    def between(self, before: int, after: int) -> Slice:
        """The separator that the source itself has, chosen so that JSON keeps its commas and paragraphs part."""
        units = self._text.units
        if after == before + 1 or after in self._closes:
            return self.gap_before(after)
        if before in self._opens:
            return self.gap_before(before + 1)
        frame = units[after].frame
        if frame is not None and self._text.frames[frame].kind in DATA:
            return self.gap_before(after)
        if units[before].document != units[after].document:
            gap = self.gap_before(self._text.documents[units[after].document].units[0])
            # A page's heading may bring its own tag: then what parts it from its text parts that, too.
            return gap if gap.end > gap.start else self.gap_before(after)
        if units[before].paragraph != units[after].paragraph:
            return self.gap_before(self._paragraph_first[units[after].paragraph])
        return self.gap_before(after)

    def assemble(self, kept: Sequence[int]) -> list[Slice]:
        """Slices, in source order, whose concatenation is the output. `kept` is sorted; frames are complete in it."""
        slices: list[Slice] = []
        units, gaps, before = self._text.units, self._gaps, -1
        for unit in kept:
            if before >= 0:
                slices.append(gaps[unit] if unit == before + 1 else self.between(before, unit))
            slices.append(Slice(units[unit].start, units[unit].end))
            before = unit
        return merged(slices)

    def assemble_by_relevance(self, kept: Sequence[int], scores: Sequence[float]) -> list[Slice]:
        """Whole documents, or paragraphs where there is one document, the most relevant first."""
        groups = movable_groups(self._text, kept)
        if len(groups) < 2:
            return self.assemble(kept)
        ranked = sorted(groups, key=lambda group: -max(scores[unit] for unit in group))
        separator = self.between(groups[0][-1], groups[1][0])
        slices: list[Slice] = []
        for group in ranked:
            if slices:
                slices.append(separator)
            slices.extend(self.assemble(group))
        return merged(slices)


MARK = "[…]"
# Inside a JSON string a line end is written out.
_SPACE = re.compile(r"(?:\s|\\[nrt])*+")
# Of the frames around a gap, the innermost of these kinds says whether the gap is in text or in JSON.
_DECIDING = DATA | {"string", "message"}
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
        written = (
            marks if not self._text.is_conversation else {at: _escaped(mark) for at, mark in marks.items()}
        )
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
        if (
            origin is not None
            and origin.is_conversation
            and not origin.is_in_text(self._units[before].end, self._units[after].start)
        ):
            return False
        number = self._framed_by.get(before, self._units[before].frame)
        while number is not None:
            frame = self._text.frames[number]
            is_around = frame.open <= before and (frame.close is None or frame.close >= after)
            if is_around and frame.kind in _DECIDING:
                return frame.kind not in DATA
            number = frame.parent
        return not {self._units[before].kind, self._units[after].kind} <= _JSON_UNITS

    def _space_before(self, unit: int) -> str:
        start, end = self._assembler.gap_before(unit)
        gap = self._source[start:end]
        return gap if _SPACE.fullmatch(gap) else " "


def _escaped(mark: str) -> str:
    """As it is written inside a JSON string."""
    return json.dumps(mark, ensure_ascii=False)[1:-1]
