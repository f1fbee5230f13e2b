"""How near a text is to the query in meaning: cosines of means, and the best match of each piece of the query."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compression.embeddings import TokenEmbeddings, normalised
from compression.features.layout import Layout, Levels
from compression.features.matching import Query
from compression.features.words import Floats, Ints, Words

MOST_PIECES = 64


@dataclass(frozen=True)
class Pieces:
    """The word pieces of a text: `distinct` ids, `ids` into them by occurrence, the unit of each, and unit vectors."""

    distinct: Ints
    ids: Ints
    units: Ints
    vectors: Floats
    weights: Floats
    sums: Floats


def break_up(words: Words, embeddings: TokenEmbeddings) -> Pieces:
    """Every word in pieces. A word in many pieces weighs as much as one in few."""
    split = [embeddings.pieces_of(word) for word in words.folded]
    sizes = np.array([len(pieces) for pieces in split], np.int64)
    flat = np.array([piece for pieces in split for piece in pieces], np.int64)
    share = np.repeat(1.0 / np.maximum(1, sizes), sizes).astype(np.float32)
    distinct, number = np.unique(flat, return_inverse=True)
    start = np.cumsum(sizes) - sizes
    repeats = sizes[words.ids] if len(words.ids) else words.ids
    offset = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    at = np.repeat(start[words.ids], repeats) + offset if len(words.ids) else words.ids
    units = np.repeat(words.units, repeats)
    ids = number[at]
    weights = embeddings.weights[distinct][ids] * share[at]
    vectors = embeddings.vectors(distinct)
    sums = _sums(ids, units, weights, vectors, len(words.first))
    return Pieces(distinct, ids, units, vectors, weights, sums)


def _sums(ids: Ints, units: Ints, weights: Floats, vectors: Floats, height: int) -> Floats:
    """Weighted sum of vectors a unit, in slices that bound the memory."""
    out = np.zeros((height, vectors.shape[1]), np.float32)
    for start in range(0, len(ids), 1 << 16):
        stop = start + (1 << 16)
        of = units[start:stop]
        dense = vectors[ids[start:stop]] * weights[start:stop, None]
        begins = np.flatnonzero(np.r_[True, of[1:] != of[:-1]])
        out[of[begins]] += np.add.reduceat(dense, begins, axis=0)
    return out


def compare(
    query: Query, pieces: Pieces, words: Words, layout: Layout, embeddings: TokenEmbeddings
) -> Levels:
    """Cosines of means, and weighted best matches, of units, titled units, paragraphs and documents."""
    asked = np.array([p for word in query.words for p in embeddings.pieces_of(word)][:MOST_PIECES], np.int64)
    vectors = embeddings.vectors(asked)
    weights = embeddings.weights[asked]
    best = _best_matches(pieces, vectors, len(words.first))
    share = weights / max(float(weights.sum()), 1e-6) if len(weights) else np.zeros(1, np.float32)
    whole = normalised(weights @ vectors) if len(weights) else np.zeros(vectors.shape[1], np.float32)
    sums, heads = pieces.sums, layout.heads
    titled = sums + sums[heads] * (heads != np.arange(len(sums)))[:, None]
    return {
        "mean.unit": (normalised(sums) @ whole, None),
        "mean.titled": (normalised(titled) @ whole, None),
        "mean.paragraph": (normalised(layout.paragraphs.total(sums)) @ whole, layout.paragraphs),
        "mean.document": (normalised(layout.documents.total(sums)) @ whole, layout.documents),
        "late.unit": (best @ share, None),
        "late.titled": (np.maximum(best, best[heads]) @ share, None),
        "late.paragraph": (layout.paragraphs.largest(best) @ share, layout.paragraphs),
        "late.document": (layout.documents.largest(best) @ share, layout.documents),
    }


def _best_matches(pieces: Pieces, asked: Floats, height: int) -> Floats:
    """For each unit and piece of the query, the cosine of the nearest piece in the unit: (units, pieces)."""
    out = np.zeros((height, max(1, len(asked))), np.float32)
    if not len(asked) or not len(pieces.ids):
        return out
    near = np.maximum(pieces.vectors @ asked.T, 0)
    # In slices that bound the memory.
    for start in range(0, len(pieces.ids), 1 << 16):
        of = pieces.units[start : start + (1 << 16)]
        begins = np.flatnonzero(np.r_[True, of[1:] != of[:-1]])
        best = np.maximum.reduceat(near[pieces.ids[start : start + (1 << 16)]], begins, axis=0)
        out[of[begins]] = np.maximum(out[of[begins]], best)
    return out
