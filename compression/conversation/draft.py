"""Collects the units, frames and documents of a conversation, those of its texts among them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from compression.conversation.layout import Layout
from compression.source.units import FRAMING, Document, Frame, Segmentation, Unit, UnitKind


@dataclass(slots=True)
class Draft:
    """What has been written so far."""

    units: list[Unit] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)  # offsets of documents
    first: list[int] = field(default_factory=list)  # their first units
    titles: list[int | None] = field(default_factory=list)
    paragraph: int = 0

    def open_document(self, start: int) -> None:
        self.starts.append(start)
        self.first.append(len(self.units))
        self.titles.append(None)

    def add(self, start: int, end: int, kind: UnitKind, frame: int | None, *, protected: bool = False) -> int:
        """A unit that is a paragraph of its own."""
        document = len(self.starts) - 1
        self.units.append(Unit(start, end, kind, document, self.paragraph, protected, frame))
        self.paragraph += 1
        return len(self.units) - 1

    def open_frame(self, frame: Frame) -> int:
        self.frames.append(frame)
        return len(self.frames) - 1

    def close_frame(self, number: int, start: int, end: int, *, protected: bool) -> None:
        frame = self.frames[number]
        close = self.add(start, end, "bracket", frame.parent, protected=protected)
        self.frames[number] = replace(frame, close=close)

    def graft(self, text: Segmentation, offset: int, frame: int) -> None:
        """Add the units of a text that begins at `offset`, inside `frame`, with its documents and frames."""
        units, frames, documents = len(self.units), len(self.frames), len(self.starts) - 1
        for number, document in enumerate(text.documents):
            if number:
                self.starts.append(offset + document.start)
                self.first.append(units + document.units[0])
                self.titles.append(None)
            if document.title is not None and self.titles[-1] is None:
                self.titles[-1] = units + document.title
        for unit in text.units:
            self.units.append(
                replace(
                    unit,
                    start=unit.start + offset,
                    end=unit.end + offset,
                    document=unit.document + documents,
                    paragraph=unit.paragraph + self.paragraph,
                    frame=frame if unit.frame is None else frames + unit.frame,
                )
            )
        self.frames.extend(_moved(inner, units, frames, frame) for inner in text.frames)
        self.paragraph += text.units[-1].paragraph + 1 if text.units else 0

    def let_empty_frames_be_chosen(self, ends: Mapping[int, Sequence[int]]) -> None:
        """Where an exchange has neither text nor arguments, its first piece of JSON may be chosen instead."""
        holding: set[int] = set()
        for unit in self.units:
            frame = None if unit.kind == "bracket" else unit.frame
            while frame is not None and frame not in holding:
                holding.add(frame)
                frame = self.frames[frame].parent
        for number, found in ends.items():
            if number not in holding and all(self.units[unit].kind == "bracket" for unit in found):
                self.units[found[0]] = replace(self.units[found[0]], kind="json_member")

    def build(self, layout: Layout, wanted: Sequence[int]) -> Segmentation:
        lasts = [*self.first[1:], len(self.units)]
        ends = [*self.starts[1:], len(layout.source)]
        documents = [
            Document(start, end, (first, last), title)
            for start, end, first, last, title in zip(
                self.starts, ends, self.first, lasts, self.titles, strict=True
            )
        ]
        return Segmentation(
            layout.source,
            tuple(self.units),
            tuple(documents),
            tuple(self.frames),
            layout.origin,
            tuple(unit for unit in wanted if self.units[unit].kind not in FRAMING),
        )


def _moved(frame: Frame, units: int, frames: int, outer: int) -> Frame:
    return Frame(
        frame.kind,
        frame.open + units,
        None if frame.close is None else frame.close + units,
        outer if frame.parent is None else frame.parent + frames,
        tuple(also + units for also in frame.also),
    )
