"""Nearness of a text to the query in meaning, by static token embeddings: a vector a word piece, and no network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from tokenizers.models import WordPiece

from compression.features.layout import Floats, Ints, Layout, Levels, Runs
from compression.features.matching import Query
from compression.features.words import Words, remembered

UNKNOWN = 100
_UNKNOWN_PIECE = "[UNK]"


class PieceSplitter:
    """WordPiece: the longest piece of the vocabulary first, as BERT's tokenizer does, a word at a time."""

    def __init__(self, pieces: Mapping[str, int]) -> None:
        self.pieces = pieces
        self._model = WordPiece(
            {_UNKNOWN_PIECE: UNKNOWN, **pieces}, unk_token=_UNKNOWN_PIECE, max_input_chars_per_word=2**31
        )
        # Words recur within and between texts.
        self.split = remembered(self._split)

    def _split(self, word: str) -> tuple[int, ...]:
        """Ids of a folded word's pieces; the unknown piece alone where the vocabulary does not cover it."""
        return tuple(token.id for token in self._model.tokenize(word))


@dataclass(frozen=True, eq=False)
class TokenEmbeddings:
    """A table of int8 rows; row `i` encodes the vector `rows[i] * scales[i]`, of length one.

    `weights[i]` is how much a piece counts in the mean of a text: little for frequent pieces.
    """

    rows: NDArray[np.int8]
    scales: Floats
    weights: Floats
    splitter: PieceSplitter

    @classmethod
    def build(
        cls, vocabulary: Sequence[str], rows: NDArray[np.int8], scales: Floats, weights: Floats
    ) -> TokenEmbeddings:
        pieces = {piece: number for number, piece in enumerate(vocabulary)}
        return cls(rows, scales.astype(np.float32), weights.astype(np.float32), PieceSplitter(pieces))

    def pieces_of(self, word: str) -> tuple[int, ...]:
        """Ids of the pieces of a folded word."""
        return self.splitter.split(word)

    def word_weight(self, word: str) -> float:
        """Weight of a word of the query, from 0 to 1: little where it is frequent everywhere."""
        pieces = self.splitter.split(word)
        return float(self.weights[list(pieces)].max()) if len(pieces) == 1 else 1.0

    def whole_share(self, words: Sequence[str]) -> float:
        """Share of words that are one piece; where it is low the table covers the language badly."""
        whole = [self.splitter.split(word) for word in words]
        return sum(len(pieces) == 1 and pieces[0] != UNKNOWN for pieces in whole) / max(1, len(whole))

    def vectors(self, pieces: Ints) -> Floats:
        """(pieces, width), each of length about one."""
        dense: Floats = self.rows[pieces].astype(np.float32) * self.scales[pieces, None]
        return dense


def quantise(vectors: Floats) -> tuple[NDArray[np.int8], Floats]:
    """int8 rows with a scale each, such that the rows encode vectors of length one."""
    largest = np.abs(vectors).max(axis=1, keepdims=True).clip(1e-9)
    rows = np.rint(vectors / largest * 127).astype(np.int8)
    lengths = np.linalg.norm(rows.astype(np.float32), axis=1).clip(1e-9)
    return rows, (1.0 / lengths).astype(np.float32)


def normalised(vectors: Floats) -> Floats:
    lengths: Floats = np.linalg.norm(vectors, axis=-1, keepdims=True)
    out: Floats = (vectors / np.maximum(lengths, 1e-6)).astype(np.float32)
    return out


MOST_PIECES = 64
_WORDS_AT_ONCE = 1 << 12


@dataclass(frozen=True)
class Pieces:
    """The word pieces of a text: `of_words` are the ids of each distinct word's, one word after the other, `sizes` how
    many each word has. `sums` is the weighted sum of their vectors by unit: (units, width).
    """

    of_words: Ints
    sizes: Ints
    sums: Floats


def break_up(words: Words, embeddings: TokenEmbeddings) -> Pieces:
    """Every word in pieces. A word in many pieces weighs as much as one in few."""
    split = [embeddings.pieces_of(word) for word in words.folded]
    sizes = np.fromiter(map(len, split), np.int64, len(split))
    flat = np.fromiter(chain.from_iterable(split), np.int64, int(sizes.sum()))
    return Pieces(flat, sizes, _sums(words, flat, sizes, embeddings))


def _sums(words: Words, flat: Ints, sizes: Ints, embeddings: TokenEmbeddings) -> Floats:
    """Weighted sum of vectors a unit, some units at a time to bound the memory."""
    out = np.zeros((len(words.first), embeddings.rows.shape[1]), np.float32)
    shares = np.repeat(1.0 / np.maximum(1, sizes), sizes).astype(np.float32)
    weights = np.multiply(embeddings.weights[flat], shares)
    begins = np.cumsum(sizes) - sizes
    number_of = np.zeros(len(sizes), np.int64)
    for start, stop in _slices(words):
        ids = words.ids[words.first[start] : words.last[stop - 1]]
        own = np.flatnonzero(np.bincount(ids, minlength=len(sizes)))
        number_of[own] = np.arange(len(own))
        at = _ranges(begins[own], sizes[own])
        vectors = np.multiply(embeddings.vectors(flat[at]), weights[at, None])
        of_words = Runs.of(sizes[own]).reduce(np.add, vectors)
        of_units = Runs.of(words.last[start:stop] - words.first[start:stop])
        out[start:stop] = of_units.reduce(np.add, of_words, number_of[ids])
    return out


def _ranges(starts: Ints, sizes: Ints) -> Ints:
    """The numbers of each range, one range after the other."""
    ends = np.cumsum(sizes)
    inside: Ints = np.arange(sizes.sum()) + np.repeat(starts - (ends - sizes), sizes)
    return inside


def _slices(words: Words) -> Iterator[tuple[int, int]]:
    """Half-open ranges of units that have about as many words."""
    start = 0
    while start < len(words.first):
        stop = int(np.searchsorted(words.last, words.first[start] + _WORDS_AT_ONCE, "right"))
        yield start, max(start + 1, stop)
        start = max(start + 1, stop)


def compare(
    query: Query, pieces: Pieces, words: Words, layout: Layout, embeddings: TokenEmbeddings
) -> Levels:
    """Cosines of means, and weighted best matches, of units, titled units, paragraphs and documents."""
    asked = np.array([p for word in query.words for p in embeddings.pieces_of(word)][:MOST_PIECES], np.int64)
    vectors = embeddings.vectors(asked)
    weights = embeddings.weights[asked]
    best = _best_matches(pieces, words, vectors, embeddings)
    share = weights / max(float(weights.sum()), 1e-6) if len(weights) else np.zeros(1, np.float32)
    whole = normalised(weights @ vectors) if len(weights) else np.zeros(vectors.shape[1], np.float32)
    heads = layout.heads
    return {
        **_means(pieces.sums, whole, layout),
        "late.unit": (best @ share, None),
        "late.titled": (np.maximum(best, best[heads]) @ share, None),
        "late.paragraph": (layout.paragraphs.largest(best) @ share, layout.paragraphs),
        "late.document": (layout.documents.largest(best) @ share, layout.documents),
    }


def _means(sums: Floats, whole: Floats, layout: Layout) -> Levels:
    """Cosines of the mean vector with the query's, `whole`."""
    titled = sums[layout.heads]
    titled[layout.heads == np.arange(len(sums))] = 0
    titled += sums
    paragraphs, documents = layout.paragraphs, layout.documents
    return {
        "mean.unit": (_cosines(sums, whole), None),
        "mean.titled": (_cosines(titled, whole), None),
        "mean.paragraph": (_cosines(paragraphs.total(sums), whole), paragraphs),
        "mean.document": (_cosines(documents.total(sums), whole), documents),
    }


def _cosines(vectors: Floats, whole: Floats) -> Floats:
    """Of each row with `whole`, which has length one."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    cosines: Floats = (vectors @ whole) / np.maximum(lengths, np.float32(1e-6))
    return cosines


def _best_matches(pieces: Pieces, words: Words, asked: Floats, embeddings: TokenEmbeddings) -> Floats:
    """For each unit and piece of the query, the cosine of the nearest piece in the unit: (units, pieces)."""
    if not len(asked):
        return np.zeros((len(words.first), 1), np.float32)
    distinct, number = np.unique(pieces.of_words, return_inverse=True)
    near = np.zeros((len(distinct), len(asked)), np.float32)
    for start in range(0, len(distinct), _WORDS_AT_ONCE):
        some = slice(start, start + _WORDS_AT_ONCE)
        np.maximum(embeddings.vectors(distinct[some]) @ asked.T, 0, out=near[some])
    of_words = Runs.of(pieces.sizes).reduce(np.maximum, near, number)
    return words.runs.reduce(np.maximum, of_words, words.ids)
