"""Puts kept units together again with nothing but slices of the source, separators included."""

from collections.abc import Sequence
from functools import cached_property

from compression.choosing.ordering import movable_groups
from compression.source.slices import Slice, join, kept_parts, merged
from compression.source.units import Segmentation

__all__ = ["Assembler", "Slice", "join", "kept_parts", "merged"]

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
        """What the source has between `unit` and the one before it; long runs of white space are cut short."""
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
        if frame is not None and self._text.frames[frame].kind == "json":
            return self.gap_before(after)
        if units[before].document != units[after].document:
            return self.gap_before(self._text.documents[units[after].document].units[0])
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
