"""Boosted trees for a probability, in numpy, that rise in chosen columns by construction.

Newton boosting on the logistic loss over binned columns (Chen and Guestrin, 2016); a split in a column that must rise
is taken only where its right side is not lower, and both sides stay within the bounds of the splits above it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_EVERY = np.inf


@dataclass(frozen=True, slots=True)
class Boosting:
    """`depth` levels of splits a tree; `least_weight`: rows, by weight, on each side of a split."""

    rounds: int = 150
    depth: int = 3
    rate: float = 0.08
    bins: int = 32
    least_weight: float = 40.0
    ridge: float = 20.0


@dataclass(frozen=True, slots=True)
class Trees:
    """Complete binary trees in heap order: splits `[trees, 2^depth - 1]`, leaves `[trees, 2^depth]`.

    A row goes right where its column is above the threshold.
    """

    base: float
    columns: Ints
    thresholds: Floats
    leaves: Floats

    @classmethod
    def of(cls, data: Mapping[str, Any], width: int) -> Trees:
        """Trees from what `as_json` gave, for rows of `width` columns. Raises `KeyError`, `TypeError`, `ValueError`."""
        columns = np.array(data["columns"], np.int64)
        thresholds = np.array(
            [[np.inf if cut is None else cut for cut in tree] for tree in data["thresholds"]]
        )
        leaves = np.array(data["leaves"], np.float64)
        if columns.ndim != 2 or columns.shape != thresholds.shape:
            raise ValueError("columns and thresholds of the trees do not match")
        if leaves.shape != (len(columns), columns.shape[1] + 1) or (columns.shape[1] + 1).bit_count() != 1:
            raise ValueError("leaves of the trees do not match their splits")
        if not ((columns >= 0) & (columns < width)).all():
            raise ValueError(f"a tree has a column beyond its {width}")
        if not np.isfinite(leaves).all():
            raise ValueError("a leaf is not a finite number")
        return cls(float(data["base"]), columns, thresholds, leaves)

    def as_json(self) -> dict[str, Any]:
        """Plain lists. A node that is not a split has no threshold."""
        return {
            "base": self.base,
            "columns": self.columns.tolist(),
            "thresholds": [
                [cut if np.isfinite(cut) else None for cut in tree] for tree in self.thresholds.tolist()
            ],
            "leaves": self.leaves.tolist(),
        }

    def logit(self, row: Floats) -> float:
        """The logit of one row."""
        trees = np.arange(len(self.columns))
        nodes = np.zeros(len(trees), np.int64)
        inner = self.columns.shape[1]
        while len(nodes) and nodes[0] < inner:
            nodes = 2 * nodes + 1 + (row[self.columns[trees, nodes]] > self.thresholds[trees, nodes])
        return self.base + float(self.leaves[trees, nodes - inner].sum())

    def logits(self, rows: Floats) -> Floats:
        """The logits of many rows, tree by tree."""
        found = np.full(len(rows), self.base)
        inner, at = self.columns.shape[1], np.arange(len(rows))
        for columns, thresholds, leaves in zip(self.columns, self.thresholds, self.leaves, strict=True):
            nodes = np.zeros(len(rows), np.int64)
            while len(nodes) and nodes[0] < inner:
                nodes = 2 * nodes + 1 + (rows[at, columns[nodes]] > thresholds[nodes])
            found += leaves[nodes - inner]
        return found


def sigmoid(logits: Floats) -> Floats:
    found: Floats = 1.0 / (1.0 + np.exp(-np.clip(logits, -40.0, 40.0)))
    return found


def grow(
    rows: Floats, kept: Floats, weights: Floats, rises: NDArray[np.bool_], settings: Boosting,
    advance: Callable[[], None] = lambda: None,
) -> Trees:  # fmt: skip
    """Trees for the probability that `kept` is 1. `rises`: columns in which it must not fall. Deterministic."""
    edges = [_edges(column, settings.bins) for column in rows.T]
    binned = np.stack(
        [np.searchsorted(cut, column) for cut, column in zip(edges, rows.T, strict=True)], axis=1
    )
    share = float((weights * kept).sum() / weights.sum())
    base = float(np.log((share + 1e-3) / (1 - share + 1e-3)))
    logits = np.full(len(rows), base)
    grown: list[tuple[Ints, Floats, Floats]] = []
    for _ in range(settings.rounds):
        chances = sigmoid(logits)
        slopes, bends = weights * (kept - chances), weights * chances * (1 - chances)
        tree, leaf_of = _Grower(binned, edges, rises, settings).grow(slopes, bends, weights)
        grown.append(tree)
        logits += tree[2][leaf_of]
        advance()
    columns, thresholds, leaves = (np.stack(part) for part in zip(*grown, strict=True))
    # As many digits as matter, so that a file of trees is small and says the same as they do.
    return Trees(round(base, 6), columns, np.round(thresholds, 5), np.round(leaves, 6))


def _edges(column: Floats, bins: int) -> Floats:
    """Thresholds between bins, halfway between values so that nothing depends on the last bit of one."""
    values = np.unique(column)
    if len(values) > bins:
        values = np.unique(np.quantile(column, np.linspace(0, 1, bins)))
    middles: Floats = (values[1:] + values[:-1]) / 2
    return middles


class _Grower:
    """One tree, level by level."""

    def __init__(
        self, binned: Ints, edges: list[Floats], rises: NDArray[np.bool_], settings: Boosting
    ) -> None:
        self._edges, self._rises, self._settings = edges, rises, settings
        self._width = max((len(cut) for cut in edges), default=0) + 1
        self._codes = binned + np.arange(binned.shape[1]) * self._width
        self._binned = binned
        self._cells = binned.shape[1] * self._width

    def grow(
        self, slopes: Floats, bends: Floats, weights: Floats
    ) -> tuple[tuple[Ints, Floats, Floats], Ints]:
        inner = 2**self._settings.depth - 1
        columns, thresholds = np.zeros(inner, np.int64), np.full(inner, _EVERY)
        bounds = [(-np.inf, np.inf)] * (2 * inner + 1)
        values = np.zeros(2 * inner + 1)
        nodes = np.zeros(len(slopes), np.int64)
        for level in range(self._settings.depth):
            first, count = 2**level - 1, 2**level
            sums = self._sums(nodes - first, count, slopes, bends, weights)
            for node in range(first, first + count):
                slopes_of, bends_of, weights_of = (part[node - first] for part in sums)
                found = self._best(slopes_of, bends_of, weights_of, bounds[node])
                bounds[2 * node + 1] = bounds[2 * node + 2] = bounds[node]
                values[2 * node + 1] = values[2 * node + 2] = values[node]
                if found is None:
                    values[node] = values[2 * node + 1] = values[2 * node + 2] = self._value_of(
                        sums, node - first, bounds[node]
                    )
                    continue
                column, cut, left, right = found
                columns[node], thresholds[node] = column, self._edges[column][cut]
                values[2 * node + 1], values[2 * node + 2] = left, right
                if self._rises[column]:
                    middle = (left + right) / 2
                    bounds[2 * node + 1] = (bounds[node][0], middle)
                    bounds[2 * node + 2] = (middle, bounds[node][1])
            at = nodes
            goes_right = self._binned[np.arange(len(at)), columns[at]] > self._cuts(columns, thresholds)[at]
            nodes = 2 * at + 1 + goes_right
        leaves = values[inner:] * self._settings.rate
        return (columns, thresholds, leaves), nodes - inner

    def _cuts(self, columns: Ints, thresholds: Floats) -> Ints:
        """The bin after which each split goes right."""
        return np.array([
            np.searchsorted(self._edges[column], threshold) if np.isfinite(threshold) else self._width
            for column, threshold in zip(columns, thresholds, strict=True)
        ])  # fmt: skip

    def _sums(self, nodes: Ints, count: int, *values: Floats) -> list[Floats]:
        """Each of `values` by node, column and bin."""
        codes = (self._codes + (nodes * self._cells)[:, None]).ravel()
        columns, most = self._codes.shape[1], count * self._cells
        found = (np.bincount(codes, np.repeat(each, columns), minlength=most) for each in values)
        return [each.astype(np.float64).reshape(count, -1, self._width) for each in found]

    def _value_of(self, sums: list[Floats], node: int, bounds: tuple[float, float]) -> float:
        slope, bend = float(sums[0][node][0].sum()), float(sums[1][node][0].sum())
        return float(np.clip(slope / (bend + self._settings.ridge), *bounds))

    def _best(
        self, slopes: Floats, bends: Floats, weights: Floats, bounds: tuple[float, float]
    ) -> tuple[int, int, float, float] | None:
        """Column, bin, and the values of both sides of the split that gains most; None where none does."""
        ridge, least = self._settings.ridge, self._settings.least_weight
        left = [np.cumsum(part, axis=1)[:, :-1] for part in (slopes, bends, weights)]
        total = [part.sum(axis=1, keepdims=True) for part in (slopes, bends, weights)]
        right = [whole - part for whole, part in zip(total, left, strict=True)]
        low = np.clip(left[0] / (left[1] + ridge), *bounds)
        high = np.clip(right[0] / (right[1] + ridge), *bounds)
        gain = _gain(low, left, ridge) + _gain(high, right, ridge)
        whole = np.clip(total[0] / (total[1] + ridge), *bounds)
        gain = gain - _gain(whole, total, ridge)
        allowed = (left[2] >= least) & (right[2] >= least) & ~(self._rises[:, None] & (low > high))
        gain = np.where(allowed, gain, -np.inf)
        column, cut = np.unravel_index(int(np.argmax(gain)), gain.shape)
        if not gain[column, cut] > 1e-6:
            return None
        return int(column), int(cut), float(low[column, cut]), float(high[column, cut])


def _gain(value: Floats, sums: list[Floats], ridge: float) -> Floats:
    """What a leaf of `value` takes off the loss."""
    gain: Floats = value * sums[0] - 0.5 * value**2 * (sums[1] + ridge)
    return gain
