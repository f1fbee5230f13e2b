"""Looks at scored units again, in two rounds: evidence lifts what it names, then what that names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from compression.features.network import Network
from compression.features.runs import Floats
from compression.features.weights import BadWeights, beginning_with, read_arrays
from compression.second_look.inputs import Inputs, relations

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
