"""Makes the table of token embeddings: the teacher's view of each word piece, in fewer dimensions, weighted by rarity."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from compression.embeddings import TokenEmbeddings, normalised, quantise

Floats = NDArray[np.float32]
WIDTH = 128
# BERT's vocabulary: special and unused pieces, single characters, then words from the most frequent down.
FIRST_CHARACTER = 999
FIRST_WORD = 1996
SMOOTHING = 3e-3
CHARACTER_WEIGHT = 0.3


def principal(vectors: Floats, width: int) -> Floats:
    """The vectors in the directions in which they differ most, of length one."""
    centred = vectors - vectors.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)
    return normalised(centred @ directions[:, ::-1][:, :width])


def rarity(size: int) -> Floats:
    """Smooth inverse frequency (Arora and others, 2017) by Zipf's law over the vocabulary's order."""
    rank = np.maximum(1, np.arange(size) - FIRST_WORD + 1).astype(np.float64)
    share = 1 / (rank + 1)
    weights = SMOOTHING / (SMOOTHING + share / share.sum())
    weights[:FIRST_CHARACTER] = CHARACTER_WEIGHT
    return weights.astype(np.float32)


def distil(vocabulary: list[str], vectors: Floats) -> TokenEmbeddings:
    """`vectors` are the teacher's, one a piece: (vocabulary, teacher's width)."""
    rows, scales = quantise(principal(vectors, WIDTH))
    scales = scales.astype(np.float16).astype(np.float32)
    weights = rarity(len(vocabulary)).astype(np.float16).astype(np.float32)
    return TokenEmbeddings.build(vocabulary, rows, scales, weights)
