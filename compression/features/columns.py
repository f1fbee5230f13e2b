"""Named columns of features, each compared with the others of its context so that its length does not matter."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compression.features.layout import Group
from compression.features.runs import Floats

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
