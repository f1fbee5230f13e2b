"""What compression works on: the source cut into units that are kept or dropped whole, and documents that hold them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from compression.source.origin import Origin
from compression.source.slices import Slice, join

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
FrameKind = Literal["json", "string", "code", "table", "turn", "tag", "message", "block"]


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
    """Units kept whenever one inside is: brackets of JSON, fences of code, a table's header, a turn's speaker,
    of a `block` the head of a hunk, of a failed test or of a folder.

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
    score, where there is room: what the user of a conversation said last.
    """

    source: str
    units: tuple[Unit, ...]
    documents: tuple[Document, ...]
    frames: tuple[Frame, ...] = ()
    origin: Origin | None = None
    wanted: tuple[int, ...] = ()
    # What was computed from it whatever the query, by name: the scorer and the choice of units share it.
    readings: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

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
