"""Looks at scored units again, twice: evidence lifts what it names, then what that names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from compression.features.network import Network
from compression.features.runs import Floats
from compression.second_look.inputs import Inputs, relations

WEIGHTS = Path(__file__).parent.parent / "weights" / "second_look.npz"
FORMAT = 1
ROUNDS = ("one", "two")


@dataclass(frozen=True)
class SecondLook:
    """A network a round; each reads the features of the round before it too. `labels` are all features, in order."""

    rounds: tuple[Network, ...]
    labels: tuple[str, ...]

    @classmethod
    def load(cls, path: Path | None = None) -> SecondLook:
        """The weights that come with pith, or another file made by `python -m compression.training.second_look`.

        Raises `FileNotFoundError`, and `ValueError` for a file that is none of this version's.
        """
        path = WEIGHTS if path is None else path
        if not path.is_file():
            raise FileNotFoundError(
                f"no weights of the second look at {path}; make them: python -m compression.training.second_look"
            )
        with np.load(path, allow_pickle=False) as arrays:
            try:
                about = json.loads(bytes(arrays["about"]).decode())
                rounds = tuple(_network(arrays, f"{prefix}.") for prefix in ROUNDS)
            except (KeyError, ValueError) as error:
                raise ValueError(f"{path}: {type(error).__name__}: {error}") from error
        if about["format"] != FORMAT:
            raise ValueError(f"{path}: format {about['format']}, where this version reads {FORMAT}")
        return cls(rounds, tuple(about["features"]))

    def logits(self, seen: Inputs, first: Floats) -> Floats:
        """(units,): the logits of a first look, of whatever scorer, looked at again."""
        tables, logits, labels = [*seen.tables], first, list(seen.labels)
        for network in self.rounds:
            names, related = relations(seen, logits)
            tables.append(related)
            labels += names
            logits = network.logits(*tables, layout=seen.layout)
        if tuple(labels) != self.labels:
            raise ValueError(
                "the weights of the second look were trained on other features; "
                "make them anew: python -m compression.training.second_look"
            )
        return logits


def _network(arrays: Mapping[str, Any], prefix: str) -> Network:
    """The network whose arrays are named with this prefix. Raises `KeyError` where one is missing."""
    return Network.of({name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)})
