"""What compression works on: the source cut into units that are kept or dropped whole, and documents that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

UnitKind = Literal[
    "sentence", "heading", "turn", "list_item", "table_header", "table_row", "code_block", "json_member", "line"
]


@dataclass(frozen=True, slots=True)
class Unit:
    """A slice `source[start:end]` that is kept or dropped as one piece; offsets count code points.

    `document` and `paragraph` are indices; units of one paragraph are neighbours. `protected` units are kept
    whatever their score (what protects is the configuration's business).
    """

    start: int
    end: int
    kind: UnitKind
    document: int
    paragraph: int
    protected: bool = False


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

    def text(self, unit: int) -> str:
        return self.source[self.units[unit].start : self.units[unit].end]


class Scorer(Protocol):
    """Says how much each unit matters to a query."""

    def score(self, query: str, text: Segmentation) -> Sequence[float]:
        """One score a unit, in [0, 1], comparable over the whole source. Deterministic."""
        ...
