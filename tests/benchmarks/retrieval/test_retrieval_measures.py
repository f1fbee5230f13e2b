"""The measures of retrieval on orders whose figures are plain."""

from __future__ import annotations

import pytest

from benchmarks.retrieval.measures import percents
from benchmarks.retrieval.methods import LEXICAL, STATIC, Methods
from benchmarks.retrieval.pools import Pool, Question
from compression.scorers.lexical import LexicalScorer


def test_a_perfect_order_has_everything_and_the_worst_nothing() -> None:
    best = percents([([3, 7, *range(20, 40)], frozenset({3, 7}))])
    assert best == {"recall@1": 50, "recall@5": 100, "recall@10": 100, "nDCG@10": 100, "MRR@10": 100}
    assert set(percents([(list(range(30)), frozenset({25}))]).values()) == {0}


def test_a_place_is_worth_what_its_measure_says() -> None:
    second = percents([([0, 1, 2], frozenset({1}))])
    assert (second["recall@1"], second["MRR@10"]) == (0, 50)
    assert second["nDCG@10"] == pytest.approx(63.09, abs=0.01)
    mean = percents([([0, 1], frozenset({0})), ([0, 1], frozenset({1}))])
    assert (mean["recall@1"], mean["MRR@10"]) == (50, 75)


def test_each_method_orders_every_passage_once() -> None:
    passages = (
        "Cats\nA cat sleeps all day.",
        "Paris\nParis is the capital of France.",
        "Sea\nThe sea is deep.",
    )
    question = Question("What is the capital of France?", frozenset({1}))
    found = Methods(LexicalScorer.load(), Pool(passages, (question,)), is_large=False).orders(question.text)
    assert all(sorted(order) == [0, 1, 2] for order in found.values())
    assert found[LEXICAL][0] == found[STATIC][0] == 1
