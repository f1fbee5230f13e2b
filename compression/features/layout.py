"""Where each unit is: its document, paragraph and head, and sums over them, the same for every query."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from compression.features.runs import Floats, Ints, Runs
from compression.source.units import Segmentation


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
