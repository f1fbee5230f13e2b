"""The source as compression works on it: slices, units, frames and documents; a builder."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from compression.source.origin import Edit, Origin


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
    """The parts of `[start, end)` that are in `slices`, which are in source order."""
    at = max(0, bisect_left(slices, (start, start)) - 1)
    parts = []
    while at < len(slices) and slices[at].start < end:
        low, high = max(start, slices[at].start), min(end, slices[at].end)
        if low < high:
            parts.append(Slice(low, high))
        at += 1
    return parts


UnitKind = Literal[
    "sentence",
    "heading",
    "turn",
    "speaker",
    "list_item",
    "table_header",
    "table_row",
    "code_block",
    "fence",
    "json_member",
    "bracket",
    "line",
]
# What only frames other units, and never is chosen for itself; and with it what says what they are about.
FRAMING: frozenset[UnitKind] = frozenset({"bracket", "fence", "speaker"})
STRUCTURE: frozenset[UnitKind] = FRAMING | {"table_header", "heading"}
FrameKind = Literal["json", "xml", "string", "code", "table", "turn", "tag", "message", "block"]

# Frames of data, whose members are chosen by what is on their path.
DATA: frozenset[FrameKind] = frozenset({"json", "xml"})


@dataclass(frozen=True, slots=True)
class Unit:
    """A slice `source[start:end]` that is kept or dropped as one piece; offsets count code points.

    `document` and `paragraph` are indices; units of one paragraph are neighbours. `protected` units are kept
    whatever their score (what protects is the configuration's business). `frame` is the index of the frame that
    the unit needs.
    """

    start: int
    end: int
    kind: UnitKind
    document: int
    paragraph: int
    protected: bool = False
    frame: int | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """Units kept whenever one inside is: brackets of JSON, fences of code, a table's header, a turn's speaker, of a
    `block` the head of a hunk, of a failed test, of a folder or of a function.
    `open` and `close` are indices of units (kinds `bracket`, `fence`, `table_header`, `speaker`); they are never
    chosen for themselves. `parent` is the frame around this one. `also` are more such units, in source order and
    between the two: a message's JSON around and between its texts, a call's results. Of a `json` frame they
    are the members that say what the record is. Of these and of a `message` frame units of another kind than `bracket`
    (a call's arguments) may be chosen for themselves too, and bring the frame with them.
    """

    kind: FrameKind
    open: int
    close: int | None
    parent: int | None
    also: tuple[int, ...] = ()

    @property
    def ends(self) -> tuple[int, ...]:
        """The units that the frame is made of."""
        return (self.open, *self.also) if self.close is None else (self.open, *self.also, self.close)


@dataclass(frozen=True, slots=True)
class Document:
    """A self-contained part of the source: one retrieved passage, one file, one meeting.

    `title` is the index of the unit that names it, if there is one; `units` is the half-open range of its units.
    """

    start: int
    end: int
    units: tuple[int, int]
    title: int | None


@dataclass(frozen=True, slots=True)
class Segmentation:
    """The source and its units in source order; they do not overlap. What lies between two is separators.

    Where there is an `origin`, the source is a view of the input, as of JSON whose texts are decoded: all offsets here
    are of the view, and what is counted and returned is the input's. `wanted` are units that are kept, whatever their
    score, where there is room: what the user of a conversation said last. `main` are stretches of the source that are
    the text of a page, apart from what is around it; empty where the source has no page. `results` are half-open
    ranges of units, in source order: the messages of a conversation that hold results of calls.

    `edits` are what a view of the source is to leave out or decode (`compression.source.edits`); none, once it is made.
    """

    source: str
    units: tuple[Unit, ...]
    documents: tuple[Document, ...]
    frames: tuple[Frame, ...] = ()
    origin: Origin | None = None
    wanted: tuple[int, ...] = ()
    main: tuple[Slice, ...] = ()
    edits: tuple[Edit, ...] = ()
    results: tuple[tuple[int, int], ...] = ()
    # What was computed from it whatever the query, by name: the scorer and the choice of units share it.
    readings: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def is_conversation(self) -> bool:
        return self.origin is not None and self.origin.is_conversation

    def text(self, unit: int) -> str:
        return self.source[self.units[unit].start : self.units[unit].end]

    def texts(self) -> list[str]:
        """The text of every unit."""
        return [self.source[unit.start : unit.end] for unit in self.units]

    def raw(self, slices: Sequence[Slice]) -> str:
        """The text of the input at `slices` of the source."""
        return join(self.source, slices) if self.origin is None else self.origin.text(slices)

    def raw_slices(self, slices: Sequence[Slice]) -> list[Slice]:
        """The same slices, as offsets into the input."""
        return list(slices) if self.origin is None else self.origin.slices(slices)

    def raw_span(self, start: int, end: int) -> Slice:
        """From where `source[start:end]` begins in the input to where it ends there."""
        if self.origin is None:
            return Slice(start, end)
        return Slice(self.origin.start(start), self.origin.end(end))


def last_units(text: Segmentation) -> list[int]:
    """The last unit inside each frame, its closing one where it has one."""
    last = [frame.open if frame.close is None else frame.close for frame in text.frames]
    for at, unit in enumerate(text.units):
        if unit.frame is not None:
            last[unit.frame] = max(last[unit.frame], at)
    for number in range(len(last) - 1, -1, -1):
        parent = text.frames[number].parent  # which comes before it
        if parent is not None:
            last[parent] = max(last[parent], last[number])
    return last


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
    question: str = ""

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
        self._main: list[Slice] = []
        self._edits: list[Edit] = []
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
        return self.append(start, end, kind) if start < end else -1

    def append(self, start: int, end: int, kind: UnitKind, *, protected: bool = False) -> int:
        """Add just that."""
        self.units.append(
            Unit(start, end, kind, len(self._documents), self._paragraph, protected, self.frame)
        )
        return len(self.units) - 1

    def graft(self, text: Segmentation, offset: int) -> None:
        """Add the units of a text that begins at `offset`, with its documents and frames, inside the frame. The text is
        no view, but may have edits."""
        units, frames, paragraphs = len(self.units), len(self.frames), self._paragraph
        for document in text.documents:
            if document.units[0]:
                self.end_document(offset + document.start)
            if document.title is not None and self._title is None:
                self._title = units + document.title
            for unit in text.units[slice(*document.units)]:
                self.units.append(
                    Unit(
                        unit.start + offset,
                        unit.end + offset,
                        unit.kind,
                        len(self._documents),
                        unit.paragraph + paragraphs,
                        frame=self.frame if unit.frame is None else frames + unit.frame,
                    )
                )
            self._paragraph = self.units[-1].paragraph
        self.frames.extend(_moved(frame, units, frames, self.frame) for frame in text.frames)
        self._main += [Slice(start + offset, end + offset) for start, end in text.main]
        self._edits += [edit.moved(offset) for edit in text.edits]
        self.end_paragraph()

    def add_exactly(self, start: int, end: int, kind: UnitKind) -> int:
        """Add with the first line's indentation, which is part of code; line ends are trimmed on both sides."""
        while start < end and self.source[start] in "\r\n":
            start += 1
        while end > start and self.source[end - 1].isspace():
            end -= 1
        text_start = start
        while text_start < end and self.source[text_start].isspace():
            text_start += 1
        return self.append(start, end, kind) if text_start < end else -1

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
        return Segmentation(
            self.source,
            tuple(self.units),
            tuple(self._documents),
            tuple(self.frames),
            main=tuple(self._main),
            edits=tuple(self._edits),
        )


def _moved(frame: Frame, units: int, frames: int, outer: int | None) -> Frame:
    return Frame(
        frame.kind,
        frame.open + units,
        None if frame.close is None else frame.close + units,
        outer if frame.parent is None else frame.parent + frames,
        tuple(also + units for also in frame.also),
    )
