"""The bounds of segmentation, and the builder that collects units, frames and documents."""

from dataclasses import dataclass, replace

from compression.source.units import Document, Frame, FrameKind, Segmentation, Unit, UnitKind


@dataclass(frozen=True, slots=True)
class SegmentationSettings:
    """Lengths in characters. `longest_unit` bounds a sentence, `longest_dense` one in a script without spaces.

    `longest_block` bounds what is better kept whole: a code block, a stack trace, a JSON value, a short turn;
    `longest_record` a JSON value of `fewest_members` or more, of which an agent may need but one.
    Beyond `most_units` units or `most_lines` lines, which two megabytes of text have where a line has twenty
    characters, neighbours are joined: each costs its time and memory, however short it is.
    """

    longest_unit: int = 600
    longest_dense: int = 200
    longest_block: int = 400
    longest_record: int = 120
    fewest_members: int = 4
    most_units: int = 32_768
    most_lines: int = 100_000
    conversations: bool = True

    def __post_init__(self) -> None:
        for name in ("longest_unit", "longest_dense", "longest_block", "longest_record"):
            if getattr(self, name) < 40:
                raise ValueError(f"{name}: must be at least 40 characters, not {getattr(self, name)}")
        for name in ("most_units", "most_lines", "fewest_members"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: must be at least 1, not {getattr(self, name)}")


LONGEST_TITLE = 400
MOST_WITH_FRAME = 4


class Builder:
    """Units are added in source order; a frame is opened before its members and closed after them."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.units: list[Unit] = []
        self.frames: list[Frame] = []
        self.frame: int | None = None
        self._documents: list[Document] = []
        self._document_start = 0
        self._first_unit = 0
        self._title: int | None = None
        self._paragraph = 0

    def add(self, start: int, end: int, kind: UnitKind) -> int:
        """Add `source[start:end]`, trimmed of whitespace at both ends; -1 where nothing is left."""
        source = self.source
        while start < end and source[start].isspace():
            start += 1
        while end > start and source[end - 1].isspace():
            end -= 1
        return self._append(start, end, kind) if start < end else -1

    def _append(self, start: int, end: int, kind: UnitKind) -> int:
        self.units.append(Unit(start, end, kind, len(self._documents), self._paragraph, frame=self.frame))
        return len(self.units) - 1

    def add_exactly(self, start: int, end: int, kind: UnitKind) -> int:
        """Add with the first line's indentation, which is part of code; line ends are trimmed on both sides."""
        while start < end and self.source[start] in "\r\n":
            start += 1
        while end > start and self.source[end - 1].isspace():
            end -= 1
        text_start = start
        while text_start < end and self.source[text_start].isspace():
            text_start += 1
        return self._append(start, end, kind) if text_start < end else -1

    def end_paragraph(self) -> None:
        if self.units and self.units[-1].paragraph == self._paragraph:
            self._paragraph += 1

    def open_frame(self, kind: FrameKind, open_unit: int) -> int:
        """`open_unit` has been added; the units that follow are inside the frame."""
        self.frames.append(Frame(kind, open_unit, None, self.frame))
        self.frame = len(self.frames) - 1
        return self.frame

    def close_frame(
        self, start: int | None = None, end: int | None = None, kind: UnitKind = "bracket"
    ) -> None:
        """Leave the innermost frame; `source[start:end]`, where given, is what closes it."""
        assert self.frame is not None
        index = self.frame
        self.frame = self.frames[index].parent
        if start is not None and end is not None:
            close = self.add(start, end, kind)
            self.frames[index] = replace(self.frames[index], close=close if close >= 0 else None)

    def keep_with_frame(self, unit: int) -> None:
        """Keep `unit`, which is in the innermost frame, whenever anything else in it is; only a few of a frame."""
        if self.frame is None or unit < 0:
            return
        frame = self.frames[self.frame]
        if len(frame.also) < MOST_WITH_FRAME:
            self.frames[self.frame] = replace(frame, also=(*frame.also, unit))

    def set_title(self, unit: int) -> None:
        """Name the document by a unit, unless it is too long to be a name: each of its units is read with its title."""
        if (
            self._title is None
            and unit >= 0
            and self.units[unit].end - self.units[unit].start <= LONGEST_TITLE
        ):
            self._title = unit

    def end_document(self, end: int) -> None:
        """Close the document at offset `end`; a document without units is dropped."""
        self.end_paragraph()
        if len(self.units) > self._first_unit:
            units = (self._first_unit, len(self.units))
            self._documents.append(Document(self._document_start, end, units, self._title))
        self._document_start = end
        self._first_unit = len(self.units)
        self._title = None

    def build(self) -> Segmentation:
        self.end_document(len(self.source))
        return Segmentation(self.source, tuple(self.units), tuple(self._documents), tuple(self.frames))
