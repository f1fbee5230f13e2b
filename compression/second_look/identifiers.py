"""What an agent will have to repeat: identifiers, amounts and dates, by where they occur first, again and last."""

import numpy as np

from compression.features.columns import Columns
from compression.features.layout import Layout
from compression.features.runs import Floats, Ints
from compression.second_look.names import Names


def add_needs(columns: Columns, names: Names, lengths: Floats, layout: Layout) -> None:
    """`lengths` are words a unit."""
    height = len(layout.heads)
    documents = layout.documents.of
    for kind, chosen in (("id", names.is_identifier[names.terms] > 0), ("name", names.pair_weights > 0)):
        units, terms = names.units[chosen], names.terms[chosen]
        own = _count(units, height)
        columns.add(f"need.{kind}.count", np.log1p(own) / 2)
        columns.add(f"need.{kind}.density", own / np.maximum(lengths, 1))
        first, last = _extremes(units, terms, len(names.weights))
        last_document = documents[last]
        first_document = documents[first]
        new = _count(units[first[terms] == units], height)
        newest = _count(units[last[terms] == units], height)
        again = _count(units[last_document[terms] > documents[units]], height)
        known = _count(units[first_document[terms] < documents[units]], height)
        for name, count in (("new", new), ("newest", newest), ("again", again), ("known", known)):
            columns.add(f"need.{kind}.{name}", np.log1p(count) / 2)
            columns.add(f"need.{kind}.{name}.share", count / np.maximum(own, 1))
        near = layout.paragraphs.largest((again > 0).astype(np.float32))[layout.paragraphs.of]
        columns.add(f"need.{kind}.again.near", near)
    _add_place(columns, layout)


def _add_place(columns: Columns, layout: Layout) -> None:
    count = max(1, len(layout.documents.first))
    back = (count - 1 - layout.documents.of).astype(np.float32)
    columns.add("newest.document", np.exp(-back / 2))
    columns.add("newest.documents", np.exp(-back / 8))
    columns.add("newest.place", 1 - back / count)
    at = np.arange(len(layout.heads), dtype=np.float32)
    columns.add("newest.unit", np.exp(-(len(at) - 1 - at) / 20))


def _count(units: Ints, height: int) -> Floats:
    return np.bincount(units, minlength=height).astype(np.float32)


def _extremes(units: Ints, terms: Ints, size: int) -> tuple[Ints, Ints]:
    """The first and the last unit that has each term; pairs come in the order of units."""
    first, last = np.zeros(size, np.int64), np.zeros(size, np.int64)
    last[terms] = units
    first[terms[::-1]] = units[::-1]
    return first, last
