"""The ways to order passages that are compared."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from benchmarks.evaluation.retrieval import Bm25
from benchmarks.retrieval.pools import Pool
from compression.retrieval.plain import StaticEmbedder, relevance
from compression.scorers.lexical import LexicalScorer

# Passages of a search that a reranker is given.
RERANKED = 50
BM25, STATIC, BOTH, LEXICAL = "BM25", "pith-embed", "BM25 + pith-embed", "pith-rerank"


class Methods:
    """All of them, over one pool."""

    def __init__(self, scorer: LexicalScorer, pool: Pool, *, is_large: bool) -> None:
        self._scorer = scorer
        self._embedder = StaticEmbedder(scorer.embeddings)
        self._pool = pool
        self._is_large = is_large
        self._bm25 = Bm25(pool.passages)
        self._vectors = self._embedder.embed(pool.passages)

    def orders(self, question: str) -> dict[str, list[int]]:
        """Indices of the passages by each method, the best first. Both together: BM25 as a share of its best, and the
        cosine, added. The reranker orders all passages, or of many the first that both together find."""
        words = np.array(self._bm25.scores(question))
        cosines = self._vectors @ self._embedder.embed([question])[0]
        both = _order(words / max(float(words.max()), 1e-9) + cosines, question)
        given = both[:RERANKED] if self._is_large else sorted(both)
        scores = relevance(self._scorer, question, [self._pool.passages[at] for at in given])
        return {
            BM25: _order(words, question),
            STATIC: _order(cosines, question),
            BOTH: both,
            LEXICAL: [given[at] for at in _order(np.array(scores), question)],
        }


def _order(scores: np.ndarray, question: str) -> list[int]:
    """Equal scores at random, the same each time: the passage that is wanted stands first in some pools."""
    drawn: Sequence[int] = random.Random(question).sample(range(len(scores)), len(scores))
    return sorted(drawn, key=lambda at: -scores[at])
