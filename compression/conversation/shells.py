"""Writes the JSON of messages around their texts, so that what is left of them parses."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from compression.conversation.draft import Draft
from compression.conversation.layout import Hole, Laid, LaidParts
from compression.conversation.plan import Plan
from compression.source.units import Frame, Segmentation

# Cuts a text into at most that many units.
Segmenter = Callable[[str, int], Segmentation]


@dataclass(frozen=True, slots=True)
class Shells:
    """Writes messages of one exchange. `ends` collects the units that are kept with any part of it."""

    draft: Draft
    source: str
    segment_text: Segmenter
    plan: Plan
    ends: list[int]

    def add(self, laid: Laid, outer: int, frame: int, *, is_protected: bool) -> None:
        """A message in frame `outer`, its texts inside `frame`."""
        at = laid.start
        for item in self.plan.inside(laid):
            self._bracket(at, item.start, outer, is_protected=is_protected)
            self._item(item, outer, frame)
            at = item.end
        self._bracket(at, laid.end, outer, is_protected=is_protected)

    def _item(self, item: Hole | LaidParts, outer: int, frame: int) -> None:
        if isinstance(item, LaidParts):
            self._parts(item, frame)
        elif item.is_call:
            self.ends.append(self.draft.add(item.start, item.end, "json_member", outer))
        else:
            self._text(item, frame)

    def _text(self, hole: Hole, frame: int) -> None:
        text = self.source[hole.start : hole.end]
        self.draft.graft(self.segment_text(text, self.plan.most_of(hole)), hole.start, frame)

    def _bracket(self, start: int, end: int, outer: int, *, is_protected: bool = False) -> int:
        unit = self.draft.add(start, end, "bracket", outer, protected=is_protected)
        self.ends.append(unit)
        return unit

    def _parts(self, found: LaidParts, frame: int) -> None:
        """An array of parts: its brackets are kept with the message, and so are all parts but those that are texts."""
        array = self.draft.open_frame(
            Frame("json", self._bracket(found.start, found.start + 1, frame), None, frame)
        )
        for part in found.parts:
            if part.is_text:
                self._text_part(part, array)
            else:
                self._part(part, array)
        close = self._bracket(found.end - 1, found.end, frame)
        self.draft.frames[array] = replace(self.draft.frames[array], close=close)

    def _text_part(self, part: Laid, array: int) -> None:
        holes = list(part.holes())
        if not holes:
            self.draft.add(part.start, part.end, "json_member", array)
            return
        opened = self.draft.add(part.start, holes[0].start, "bracket", array)
        frame = self.draft.open_frame(Frame("string", opened, None, array))
        self._text(holes[0], frame)
        self.draft.close_frame(frame, holes[0].end, part.end, protected=False)

    def _part(self, part: Laid, array: int) -> None:
        """A call, a result, an image. A result's text is in a frame of its own, whose ends are always kept."""
        first, inside = len(self.draft.units), self.plan.inside(part)
        if not inside:
            self._bracket(part.start, part.end, array)
            return
        frame = self.draft.open_frame(Frame("string", first, None, array))
        at = part.start
        for item in inside:
            self._bracket(at, item.start, array)
            self._item(item, array, frame)
            at = item.end
        close = self._bracket(at, part.end, array)
        self.draft.frames[frame] = replace(self.draft.frames[frame], close=close)
