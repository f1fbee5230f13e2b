"""What compression works on: the source cut into units that are kept or dropped whole, and documents that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

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
FrameKind = Literal["json", "string", "code", "table", "turn", "tag"]


@dataclass(frozen=True, slots=True)
class Unit:
    """A slice `source[start:end]` that is kept or dropped as one piece; offsets count code points.

    `document` and `paragraph` are indices; units of one paragraph are neighbours. `protected` units are kept
    whatever their score (what protects is the configuration's business). `frame` is the index of the frame that
    the unit cannot stand without.
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
    """Units kept whenever one inside is: brackets of JSON, fences of code, a table's header, a turn's speaker.

    `open` and `close` are indices of units (kinds `bracket`, `fence`, `table_header`, `speaker`); they are never
    chosen for themselves. `parent` is the frame around this one.
    """

    kind: FrameKind
    open: int
    close: int | None
    parent: int | None


@dataclass(frozen=True, slots=True)
class Document:
    """A part of the source that stands by itself: one retrieved passage, one file, one meeting.

    `title` is the index of the unit that names it, if there is one; `units` is the half-open range of its units.
    """

    start: int
    end: int
    units: tuple[int, int]
    title: int | None


@dataclass(frozen=True, slots=True)
class Segmentation:
    """The source and its units in source order; they do not overlap. What lies between two is separators."""

    source: str
    units: tuple[Unit, ...]
    documents: tuple[Document, ...]
    frames: tuple[Frame, ...] = ()

    def text(self, unit: int) -> str:
        return self.source[self.units[unit].start : self.units[unit].end]


class Scorer(Protocol):
    """Says how much each unit matters to a query."""

    def score(self, query: str, text: Segmentation) -> Sequence[float]:
        """One score a unit, in [0, 1], comparable over the whole source. Deterministic."""
        ...
