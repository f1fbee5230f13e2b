"""The embedded default: features of words and meaning into a small trained network, in numpy, on weights of our own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from compression.embeddings import TokenEmbeddings
from compression.features.matrix import extract, prepare
from compression.features.network import Network
from compression.units import Segmentation

WEIGHTS = Path(__file__).parent / "weights" / "lexical.npz"
FORMAT = 1


class BadWeights(ValueError):
    """A file of weights that this version cannot read."""


@dataclass(frozen=True)
class LexicalScorer:
    """Scores units by a trained network over features of words, their parts and their static embeddings.

    `score` gives the network's probability that a unit holds what the query asks for; scores of one context are to be
    compared with one another. Without a query every unit scores 0.
    """

    embeddings: TokenEmbeddings
    network: Network
    names: tuple[str, ...]

    @classmethod
    def load(cls, path: Path | None = None) -> LexicalScorer:
        """The weights that come with pith, or another file made by `python -m compression.training`."""
        path = WEIGHTS if path is None else path
        if not path.is_file():
            raise FileNotFoundError(
                f"no weights of the lexical scorer at {path}; make them: python -m compression.training"
            )
        with np.load(path, allow_pickle=False) as arrays:
            try:
                about = json.loads(bytes(arrays["about"]).decode())
                vocabulary = bytes(arrays["vocabulary"]).decode().split("\n")
                embeddings = TokenEmbeddings.build(
                    vocabulary, arrays["rows"], arrays["scales"], arrays["weights"]
                )
                network = Network.of(
                    {name.removeprefix("net."): arrays[name] for name in arrays if "net." in name}
                )
            except (KeyError, ValueError) as error:
                raise BadWeights(f"{path}: {type(error).__name__}: {error}") from error
        if about["format"] != FORMAT:
            raise BadWeights(f"{path}: format {about['format']}, where this version reads {FORMAT}")
        return cls(embeddings, network, tuple(about["features"]))

    def score(self, query: str, text: Segmentation) -> Sequence[float]:
        """One score a unit, in [0, 1]. Deterministic."""
        if not text.units:
            return []
        if not query.strip():
            return [0.0] * len(text.units)
        logits = self.logits(query, text)
        scores: list[float] = (1.0 / (1.0 + np.exp(-np.asarray(logits, np.float64)))).tolist()
        return scores

    def logits(self, query: str, text: Segmentation) -> np.ndarray:
        """The network's output before it is squeezed into [0, 1]."""
        context = prepare(text, self.embeddings)
        names, features = extract(query, context, self.embeddings)
        if tuple(names) != self.names:
            raise BadWeights(
                "the weights were trained on other features; make them anew: python -m compression.training"
            )
        return self.network.logits(features, context.layout)
