"""Tables of features by unit: documents and paragraphs of the units, sums and maxima over them, and named columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compression.source.units import Segmentation

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

# So many rows of a run are taken together in one round; longer runs take another round over what comes out of it.
_ROUND = 16


@dataclass(frozen=True)
class Runs:
    """Runs of neighbouring rows, cut into parts of a bounded length that are taken the longest first.

    `starts` are those of the parts in that order, `order` their numbers, `reaching[k]` how many have more than `k`
    rows. `after` joins the parts of each run, and is None where each run is one part.
    """

    starts: Ints
    order: Ints
    reaching: list[int]
    after: Runs | None

    @classmethod
    def of(cls, sizes: Ints) -> Runs:
        """Runs of these lengths, which may be zero, one after the other from row 0 on."""
        starts, lengths, parts = _parted(sizes)
        order = np.argsort(-lengths, kind="stable")
        reaching = len(lengths) - np.cumsum(np.bincount(lengths, minlength=_ROUND + 1))
        return cls(starts[order], order, reaching.tolist(), None if parts is None else cls.of(parts))

    def reduce(self, operation: np.ufunc, rows: Floats, ids: Ints | None = None) -> Floats:
        """The `operation` over each run of `rows`, or of those that `ids` name: (runs, width), zeros for empty runs."""
        filled = self.reaching[0]
        out = self._row(0, filled, rows, ids)
        for offset in range(1, _ROUND):
            count = self.reaching[offset]
            if not count:
                break
            operation(out[:count], self._row(offset, count, rows, ids), out=out[:count])
        reduced = np.zeros((len(self.order), rows.shape[1]), rows.dtype)
        reduced[self.order[:filled]] = out
        return reduced if self.after is None else self.after.reduce(operation, reduced)

    def _row(self, offset: int, count: int, rows: Floats, ids: Ints | None) -> Floats:
        """Row `offset` of each of the first `count` parts."""
        at = self.starts[:count] + offset
        return rows[at if ids is None else ids[at]]


def _parted(sizes: Ints) -> tuple[Ints, Ints, Ints | None]:
    """Where each part of a run starts, how long it is, and how many parts each run has, None where all have one."""
    starts = np.cumsum(sizes) - sizes
    if not len(sizes) or sizes.max() <= _ROUND:
        return starts, sizes, None
    parts = np.maximum(1, -(-sizes // _ROUND))
    run = np.repeat(np.arange(len(sizes)), parts)
    offset = _ROUND * (np.arange(len(run)) - np.repeat(np.cumsum(parts) - parts, parts))
    return starts[run] + offset, np.minimum(_ROUND, sizes[run] - offset), parts


@dataclass(frozen=True)
class Group:
    """A division of the units into runs: `first` and `last` are half-open ranges, `of` the run of each unit."""

    first: Ints
    last: Ints
    of: Ints

    @classmethod
    def by(cls, labels: Ints) -> Group:
        """Runs of equal labels."""
        starts = (
            np.flatnonzero(np.r_[True, labels[1:] != labels[:-1]]) if len(labels) else np.zeros(0, np.int64)
        )
        last = np.r_[starts[1:], len(labels)] if len(starts) else starts
        of = np.repeat(np.arange(len(starts)), last - starts)
        return cls(starts, last, of)

    @cached_property
    def runs(self) -> Runs:
        return Runs.of(self.last - self.first)

    def total(self, values: Floats) -> Floats:
        """Sums over each run: (runs, ...)."""
        if values.ndim == 1:
            return np.add.reduceat(values, self.first) if len(self.first) else values
        return self.runs.reduce(np.add, values)

    def largest(self, values: Floats) -> Floats:
        """Maxima over each run: (runs, ...)."""
        if values.ndim == 1:
            return np.maximum.reduceat(values, self.first) if len(self.first) else values
        return self.runs.reduce(np.maximum, values)


# Scores by name, of units or, where a group is given, of its runs.
Levels = dict[str, tuple[Floats, Group | None]]


@dataclass(frozen=True)
class Layout:
    """Units in their documents and paragraphs. `heads` is each unit's title, or the first unit of its document."""

    documents: Group
    paragraphs: Group
    heads: Ints
    has_title: NDArray[np.bool_]
    is_title: NDArray[np.bool_]

    def smooth(self, values: Floats, reach: int) -> Floats:
        """Mean over the neighbours within `reach` in the same document, near ones counting most: (units, ...)."""
        return self.smooth_rows(values.T, reach)[0].T

    def smooth_rows(self, rows: Floats, *reaches: int) -> list[Floats]:
        """The same, once for each reach, of values whose last axis is the units."""
        running = _running(rows)
        found = []
        for reach in reaches:
            near, far = reach - (reach + 1) // 2, (reach + 1) // 2
            once = self._mean(running, far) if far else rows
            found.append(self._mean(_running(once), near) if near else once)
        return found

    def _mean(self, running: NDArray[np.float64], reach: int) -> Floats:
        """Of the units within `reach`, from sums over all units before each."""
        low, high = self._reached(reach)
        mean = running.take(high, axis=-1)
        mean -= running.take(low, axis=-1)
        mean /= high - low
        return mean.astype(np.float32)

    def _reached(self, reach: int) -> tuple[Ints, Ints]:
        """The half-open ranges of units within `reach`."""
        at = np.arange(len(self.heads))
        low = np.maximum(self.documents.first[self.documents.of], at - reach)
        high = np.minimum(self.documents.last[self.documents.of], at + reach + 1)
        return low, high

    def beside(self, values: Floats, offset: int) -> Floats:
        """The value of the unit `offset` places away in the same document, else zero."""
        out = np.zeros_like(values)
        at = np.arange(len(values))
        other = at + offset
        inside = (other >= self.documents.first[self.documents.of]) & (
            other < self.documents.last[self.documents.of]
        )
        out[inside] = values[other[inside]]
        return out


def _running(rows: Floats) -> NDArray[np.float64]:
    """Sums over all units before each, and over all."""
    running = np.zeros((*rows.shape[:-1], rows.shape[-1] + 1))
    np.cumsum(rows, axis=-1, dtype=np.float64, out=running[..., 1:])
    return running


def lay_out(segmentation: Segmentation) -> Layout:
    documents = Group.by(np.array([unit.document for unit in segmentation.units], np.int64))
    pairs = np.array([(unit.document << 32) + unit.paragraph for unit in segmentation.units], np.int64)
    heads = documents.first[documents.of].copy()
    has_title = np.zeros(len(heads), bool)
    is_title = np.zeros(len(heads), bool)
    for document in segmentation.documents:
        if document.title is not None:
            heads[slice(*document.units)] = document.title
            has_title[slice(*document.units)] = True
            is_title[document.title] = True
    return Layout(documents, Group.by(pairs), heads, has_title, is_title)


# Columns allocated at a time: unused columns are memory too.
ROOM = 84


class Columns:
    """A table that grows by columns, in the order in which they are added."""

    def __init__(self, height: int) -> None:
        self.names: list[str] = []
        self._table = np.zeros((ROOM, height), np.float32)

    def add(self, name: str, values: NDArray[Any] | float) -> None:
        if len(self.names) == len(self._table):
            more = np.zeros((len(self._table) + ROOM, self._table.shape[1]), np.float32)
            more[: len(self._table)] = self._table
            self._table = more
        self._table[len(self.names)] = values
        self.names.append(name)

    def add_shares(self, names: Sequence[str], rows: Floats, group: Group) -> None:
        """Scores, a row each, as shares of the best one in the unit's own group."""
        best = np.maximum(np.maximum.reduceat(rows, group.first, axis=1), 1e-6)
        for name, row in zip(names, np.clip(rows / best[:, group.of], -1, 1), strict=True):
            self.add(name, row)

    def add_relative(
        self, names: Sequence[str], rows: Floats, group: Group | None = None, *, places: bool = True
    ) -> None:
        """Scores, a row each: share of the best, distance from the mean, and place among all. `rows` have a column
        a run of the group, where there is one, else a column a unit.
        """
        share = np.clip(rows / np.maximum(rows.max(axis=1, keepdims=True), 1e-6), -1, 1)
        apart = rows - rows.mean(axis=1, keepdims=True)
        spread = np.sqrt(np.square(apart).mean(axis=1, keepdims=True))
        kinds = {"share": share, "distance": np.tanh(apart / np.maximum(3 * spread, 1e-6))}
        if places:
            kinds["place"] = 1.0 / np.sqrt(1.0 + np.stack([_places(row) for row in rows]))
        for kind, table in kinds.items():
            for name, row in zip(names, table, strict=True):
                self.add(f"{name}.{kind}", row if group is None else row[group.of])

    def table(self) -> Floats:
        """(units, features)."""
        return self._table[: len(self.names)].T


def _places(row: Floats) -> NDArray[np.int64]:
    """How many are greater than each."""
    order = np.argsort(-row)
    descending = -row[order]
    places = np.empty(len(row), np.int64)
    places[order] = np.searchsorted(descending, descending)
    return places
