"""The second look in two rounds: evidence lifts what it names, then what that names; repetitions go behind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from compression.features.layout import Floats, Ints
from compression.features.network import BadWeights, Network, beginning_with, read_arrays
from compression.second_look.inputs import Inputs, relations
from compression.source.units import Segmentation

WEIGHTS = Path(__file__).parent.parent / "weights" / "second_look.npz"
FORMAT = 1
COMMAND = "python -m benchmarks.training.second_look"
ROUNDS = ("one", "two")


@dataclass(frozen=True)
class SecondLook:
    """A network a round; each reads the features of the round before it too. `labels` are all features, in order."""

    rounds: tuple[Network, ...]
    labels: tuple[str, ...]

    @classmethod
    def load(cls, path: Path | None = None) -> SecondLook:
        """The weights that come with pith, or another file made by `python -m benchmarks.training.second_look`.

        Raises `FileNotFoundError` and `BadWeights`.
        """
        path = path or WEIGHTS
        arrays, features = read_arrays(path, "the second look", FORMAT, COMMAND)
        try:
            return cls(tuple(Network.of(beginning_with(f"{name}.", arrays)) for name in ROUNDS), features)
        except KeyError as error:
            raise BadWeights(f"{path}: {type(error).__name__}: {error}") from error

    def logits(self, seen: Inputs, first: Floats) -> Floats:
        """(units,): the logits of a first look, of whatever scorer, looked at again."""
        tables, logits, labels = [*seen.tables], first, list(seen.labels)
        for network in self.rounds:
            names, related = relations(seen, logits)
            tables.append(related)
            labels += names
            logits = network.logits(*tables, layout=seen.layout)
        if tuple(labels) != self.labels:
            raise BadWeights(
                f"the weights of the second look were trained on other features; make new ones: {COMMAND}"
            )
        return logits


_KINDS = frozenset({"json_member", "table_row", "list_item"})
# What a copy loses in logits: it ranks below what is new and nearly as good, and above what is irrelevant.
_COPY = np.float32(4.0)


def demoted(logits: Floats, text: Segmentation, copy_of: Ints, is_asked: NDArray[np.bool_]) -> Floats:
    """The logits, lowered for all but the best of identical units; of equals the last is best.

    Units with words of the query keep theirs: a query for all that is "active" wants every one.
    """
    structured = np.array([unit.kind in _KINDS for unit in text.units], bool) & ~is_asked
    at = np.flatnonzero(structured)
    if not len(at):
        return logits
    order = at[np.lexsort((-at, -logits[at], copy_of[at]))]
    is_copy = np.r_[False, copy_of[order][1:] == copy_of[order][:-1]]
    out = logits.copy()
    out[order[is_copy]] -= _COPY
    return out
