"""Measures of an order of passages: recall, nDCG and the reciprocal rank, each in percent."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

Measure = Callable[[Sequence[int], frozenset[int]], float]


def recall(first: int) -> Measure:
    """The share of the wanted that are among the first."""
    return lambda order, wanted: len(wanted.intersection(order[:first])) / len(wanted)


def ndcg(order: Sequence[int], wanted: frozenset[int], first: int = 10) -> float:
    """Discounted cumulative gain of the first ten, over that of the best order (Järvelin and Kekäläinen, 2002)."""
    gained = sum(1 / math.log2(place + 2) for place, at in enumerate(order[:first]) if at in wanted)
    return gained / sum(1 / math.log2(place + 2) for place in range(min(first, len(wanted))))


def reciprocal_rank(order: Sequence[int], wanted: frozenset[int], first: int = 10) -> float:
    """Of the first that is wanted; 0 where none is among the first ten."""
    return next((1 / (place + 1) for place, at in enumerate(order[:first]) if at in wanted), 0.0)


MEASURES: Mapping[str, Measure] = {
    "recall@1": recall(1),
    "recall@5": recall(5),
    "recall@10": recall(10),
    "nDCG@10": ndcg,
    "MRR@10": reciprocal_rank,
}


def percents(orders: Sequence[tuple[Sequence[int], frozenset[int]]]) -> dict[str, float]:
    """Each measure's mean over all questions."""
    return {
        name: 100 * sum(measure(order, wanted) for order, wanted in orders) / len(orders)
        for name, measure in MEASURES.items()
    }
