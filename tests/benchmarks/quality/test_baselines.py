"""Baselines keep within the ratio and find what words can find."""

from __future__ import annotations

import pytest

from benchmarks.quality import contexts
from benchmarks.quality.baselines import BASELINES
from benchmarks.quality.data import Passage, Records
from benchmarks.quality.metrics import holds_answer, pair_kept, tokens
from benchmarks.quality.retrieval import Bm25

ROWS = [
    Passage(
        f"who wrote opera {n}", (f"Composer{n}",), f"Opera {n}",
        f"Opera {n} is old. It has three acts. It was written by Composer{n} for the opera house.",
    )
    for n in range(30)
]  # fmt: skip
CASE = next(contexts.passage_cases(ROWS))


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("ratio", [0.05, 0.25, 0.5])
def test_a_baseline_keeps_parts_of_the_context_within_the_ratio(name: str, ratio: float) -> None:
    output = BASELINES[name](CASE, ratio)
    assert len(tokens(output)) <= ratio * len(tokens(CASE.context))
    assert all(line in CASE.context for line in output.splitlines())
    assert output == BASELINES[name](CASE, ratio)


def test_documents_by_bm25_keep_the_gold_one() -> None:
    assert holds_answer(BASELINES["BM25 documents"](CASE, 0.25), CASE.answers)


def test_json_stays_json() -> None:
    row = Records(tuple((f"key{n}", f"value{n}") for n in range(75)), "key40", "value40")
    case = next(contexts.record_cases([row], "kv_75"))
    assert pair_kept(BASELINES["BM25 sentences"](case, 0.1), "key40", "value40")


def test_bm25_prefers_rare_words_and_keeps_the_order_of_equals() -> None:
    index = Bm25(["common word here", "common rare here", "common word there", ""])
    assert index.ranking("common rare")[0] == 1
    assert index.ranking("nothing")[:3] == [0, 1, 2]
    assert Bm25([]).ranking("x") == []
