"""Retrieval by the embedding and rerank models that come with pith, compared with BM25, on questions that none of their
weights were trained on. One process, one thread, without HTTP.

    python -m benchmarks.retrieval --data ../shared/eval

A table a suite: recall, nDCG and reciprocal rank in percent. `pith-rerank` orders all passages of a question, or where
there are thousands the first 50 that BM25 and `pith-embed` together find. It ends with the times.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from rich.progress import track

from benchmarks.retrieval.measures import MEASURES, percents
from benchmarks.retrieval.methods import Methods
from benchmarks.retrieval.pools import Suite, suites
from compression.retrieval.plain import StaticEmbedder, relevance
from compression.scorers.lexical import LexicalScorer


def table(suite: Suite, scorer: LexicalScorer) -> list[str]:
    """Markdown."""
    orders: dict[str, list[tuple[list[int], frozenset[int]]]] = {}
    for pool in track(suite.pools, suite.name, transient=True):
        methods = Methods(scorer, pool, is_large=suite.is_large)
        for question in pool.questions:
            for name, order in methods.orders(question.text).items():
                orders.setdefault(name, []).append((order, question.wanted))
    passages = max(len(pool.passages) for pool in suite.pools)
    lines = [
        f"| {suite.name} ({suite.questions} questions, {passages:,} passages) | {' | '.join(MEASURES)} |"
    ]
    lines.append("|---" * (1 + len(MEASURES)) + "|")
    for name, found in orders.items():
        lines.append(f"| {name} | " + " | ".join(f"{share:.1f}" for share in percents(found).values()) + " |")
    return lines


def times(scorer: LexicalScorer, passages: tuple[str, ...], question: str) -> list[str]:
    """How long one process takes."""
    began = time.perf_counter()
    StaticEmbedder(scorer.embeddings).embed(passages)
    embedding_s = time.perf_counter() - began
    began = time.perf_counter()
    relevance(scorer, question, passages[:50])
    reranking_s = time.perf_counter() - began
    megabytes = sum(len(text.encode()) for text in passages) / 1e6
    return [
        f"Vectors of {len(passages):,} passages, {megabytes:.2f} MB: {embedding_s:.2f} s.",
        f"Reranking 50 passages: {1000 * reranking_s:.0f} ms.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        "benchmarks.retrieval", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/eval"), help="folder of the questions")
    options = parser.parse_args()
    scorer = LexicalScorer.load()
    last = None
    for suite in suites(options.data):
        print("\n".join(table(suite, scorer)), end="\n\n")
        last = suite
    assert last is not None
    pool = last.pools[0]
    print("\n".join(times(scorer, pool.passages, pool.questions[0].text)))


if __name__ == "__main__":
    main()
