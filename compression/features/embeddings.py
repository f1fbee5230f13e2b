"""Static token embeddings, distilled from a sentence encoder: a vector a word piece, and no network to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
UNKNOWN = 100
CONTINUES = "##"
LONGEST_PIECE = 18
BEGINNING = 3
REMEMBERED_WORDS = 50_000
LONGEST_REMEMBERED = 48


@dataclass
class PieceSplitter:
    """WordPiece: the longest piece of the vocabulary first, as BERT's tokenizer does, a word at a time.

    Words recur within and between texts, so splits are cached, up to a bound.
    """

    pieces: Mapping[str, int]
    seen: dict[str, tuple[int, ...]] = field(default_factory=dict, repr=False)
    _longest: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """How long a piece can be, by its beginning: most substrings of an odd word are the beginning of no piece."""
        self._longest = {}
        for piece in self.pieces:
            bare = piece.removeprefix(CONTINUES)
            start = bare[:BEGINNING]
            self._longest[start] = max(self._longest.get(start, 0), min(len(bare), LONGEST_PIECE))

    def split(self, word: str) -> tuple[int, ...]:
        """Ids of a folded word's pieces; the unknown piece alone where the vocabulary does not cover it."""
        known = self.seen.get(word)
        if known is None:
            known = self._split(word)
            if len(word) > LONGEST_REMEMBERED:
                return known
            if len(self.seen) >= REMEMBERED_WORDS:
                self.seen.clear()
            self.seen[word] = known
        return known

    def _split(self, word: str) -> tuple[int, ...]:
        whole = self.pieces.get(word)
        if whole is not None:
            return (whole,)
        found, at = [], 0
        while at < len(word):
            longest = self._longest.get(word[at : at + BEGINNING], BEGINNING - 1)
            for end in range(min(len(word), at + longest), at, -1):
                piece = self.pieces.get(word[at:end] if at == 0 else CONTINUES + word[at:end])
                if piece is not None:
                    found.append(piece)
                    at = end
                    break
            else:
                return (UNKNOWN,)
        return tuple(found)


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
        """How much a word of the query counts, from 0 to 1: little where it is frequent everywhere."""
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
