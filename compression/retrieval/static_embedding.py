"""Vectors of whole texts from the static table: the weighted mean of the vectors of their word pieces."""

from collections.abc import Sequence

import numpy as np

from compression.features.embeddings import Floats, TokenEmbeddings, normalised
from compression.features.occurrences import split_many
from compression.features.word_forms import fold

# Occurrences of pieces whose vectors are in memory at once.
_PIECES_AT_ONCE = 1 << 14


class StaticEmbedder:
    """The order of words counts for nothing, only which words there are. A word in many pieces weighs as much as one in
    few, as in the features of the lexical scorer."""

    def __init__(self, embeddings: TokenEmbeddings) -> None:
        self._embeddings = embeddings

    @property
    def width(self) -> int:
        return int(self._embeddings.rows.shape[1])

    def embed(self, texts: Sequence[str]) -> Floats:
        """(texts, width), each of length one; of a text without a word, all zeros but the last, which is one."""
        found = np.stack([self._sum(text) for text in texts])
        # A client divides by the length of what it gets.
        found[~found.any(axis=1), -1] = 1.0
        return normalised(found)

    def _sum(self, text: str) -> Floats:
        table = self._embeddings
        weights: dict[int, float] = {}
        for word in split_many(text)[0]:
            pieces = table.pieces_of(fold(word))
            for piece in pieces:
                weights[piece] = weights.get(piece, 0.0) + 1.0 / len(pieces)
        ids = np.fromiter(weights, np.int64, len(weights))
        counts = np.fromiter(weights.values(), np.float32, len(weights)) * table.weights[ids]
        total = np.zeros(self.width, np.float32)
        for start in range(0, len(ids), _PIECES_AT_ONCE):
            some = slice(start, start + _PIECES_AT_ONCE)
            total += counts[some] @ table.vectors(ids[some])
        return total
