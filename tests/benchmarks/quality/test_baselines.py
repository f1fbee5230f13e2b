"""Baselines keep within the ratio and find what they are made to find."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.evaluation.case import Case, Need, Task, join
from benchmarks.evaluation.datasets import Passage, Records
from benchmarks.evaluation.metrics import holds_answer, pair_kept, tokens
from benchmarks.evaluation.retrieval import Bm25
from benchmarks.evaluation.suites import hops, plain
from benchmarks.quality.baselines import BASELINES, suited
from benchmarks.quality.llmlingua2 import LLMLingua2
from benchmarks.quality.scoring import judge

ROWS = [
    Passage(
        f"who wrote opera {n}", (f"Composer{n}",), f"Opera {n}",
        f"Opera {n} is old. It has three acts. It was written by Composer{n} for the opera house.",
    )
    for n in range(30)
]  # fmt: skip
CASE = next(plain.passage_cases(ROWS))
FILLER = "Nothing here is of any use to anyone. It rains all day in this place. "
CHAIN = hops.HopRow(
    "Where was the builder of Old Tower born?",
    ("Lake Town",),
    (
        hops.Document("Rain", FILLER * 2, False),
        hops.Document("Ann Lee (builder)", f"Ann Lee was born in Lake Town. {FILLER}", True),
        hops.Document("Old Tower", f"Old Tower was built by Ann Lee. {FILLER}", True),
        hops.Document("Storm", FILLER * 2, False),
    ),
    ("Old Tower was built by Ann Lee.", "Ann Lee was born in Lake Town."),
)
HOPS = next(hops.cases([CHAIN], "hotpot_x", has_titles=True))


@pytest.mark.parametrize("name", ["head", "tail", "random", "BM25 sentences", "BM25 documents"])
@pytest.mark.parametrize("ratio", [0.05, 0.25, 0.5])
def test_a_baseline_keeps_parts_of_the_context_within_the_ratio(name: str, ratio: float) -> None:
    select = BASELINES[name].select
    output = select(CASE, ratio)
    assert len(tokens(output)) <= ratio * len(tokens(CASE.context))
    assert all(line in CASE.context for line in output.splitlines())
    assert output == select(CASE, ratio)


def test_documents_by_bm25_keep_the_gold_one() -> None:
    assert holds_answer(BASELINES["BM25 documents"].select(CASE, 0.25), CASE.answers)


def test_json_stays_json() -> None:
    row = Records(tuple((f"key{n}", f"value{n}") for n in range(75)), "key40", "value40")
    case = next(plain.record_cases([row], "kv_75"))
    assert pair_kept(BASELINES["BM25 sentences"].select(case, 0.1), "key40", "value40")


def test_the_tail_ends_as_the_context_does() -> None:
    assert CASE.context.endswith(BASELINES["tail"].select(CASE, 0.25).splitlines()[-1])


def test_titles_lead_from_the_question_to_the_second_document() -> None:
    output = BASELINES["follow titles"].select(HOPS, 0.4)
    assert judge(Task(HOPS, 0.4), "follow titles", output).has_evidence
    by_words = BASELINES["BM25 documents"].select(HOPS, 0.25)
    assert not judge(Task(HOPS, 0.25), "BM25 documents", by_words).has_evidence


def test_the_ceiling_by_size_is_the_evidence_where_it_fits() -> None:
    ceiling = BASELINES["ceiling by size"].select
    assert judge(Task(HOPS, 0.15), "ceiling", ceiling(HOPS, 0.15)).has_evidence
    assert not judge(Task(HOPS, 0.05), "ceiling", ceiling(HOPS, 0.05)).has_evidence


def lines_case(suite: str, lines: list[str], wanted: str) -> Case:
    context, spans = join(lines, "\n")
    needs = (Need(wanted, tuple(span for span, line in zip(spans, lines, strict=True) if wanted in line)),)
    return Case(suite, f"{suite}-0", "What now?", context, spans, needs=needs)


def test_new_identifiers_prefer_what_was_not_said_later() -> None:
    lines = ["Tool: the code is AB12CD here", *["User: well, what do we do now?"] * 20, "Tool: order W123456"]
    case = lines_case("tau_x_text", lines, "AB12CD")
    output = BASELINES["new identifiers"].select(case, 0.15)
    assert "AB12CD" in output and "W123456" in output
    assert judge(Task(case, 0.15), "new identifiers", output).has_evidence


def test_levels_come_before_what_is_in_order() -> None:
    lines = [f"10:00:{n:02} INFO all is well with part {n}" for n in range(40)]
    lines[20] = "10:00:20 ERROR disk sda1 is gone"
    lines[30] = "10:00:30 WARN disk sdb1 is slow"
    case = lines_case("logs_x", lines, "ERROR")
    assert BASELINES["level order"].select(case, 0.05).split("\n") == [lines[20], lines[30]]
    assert judge(Task(case, 0.05), "x", lines[20]).measures == {"kinds": 1.0, "all kinds": 1.0}
    assert judge(Task(case, 0.05), "x", lines[20][:-4]).measures == {"kinds": 0.0, "all kinds": 0.0}


def test_only_baselines_that_say_something_are_run() -> None:
    def names(suite: str) -> set[str]:
        return {name for name, _ in suited(lines_case(suite, ["a"], "a"))}

    assert names("nq") == {"head", "tail", "random", "BM25 sentences", "BM25 documents"}
    assert names("hotpot_x") - names("nq") == {"follow titles", "ceiling by size"}
    assert names("hotpot_x_bare") - names("nq") == {"ceiling by size"}
    assert names("tau_x_json") - names("nq") == {"new identifiers"}
    assert names("logs_hdfs") - names("nq") == {"level order"}


class FakePromptCompressor:
    """Keeps the first words, a few more than it is asked for."""

    def compress_prompt_llmlingua2(self, texts: list[str], rate: float) -> dict[str, Any]:
        words = texts[0].split()
        return {"compressed_prompt": " ".join(words[: int(len(words) * rate * 1.15)])}


def test_llmlingua_is_asked_for_less_until_it_is_within_the_ratio(tmp_path: Path) -> None:
    output = LLMLingua2(FakePromptCompressor()).select(CASE, 0.5)
    size = len(tokens(CASE.context))
    assert 0.3 * size < len(tokens(output)) <= 0.5 * size
    with pytest.raises(FileNotFoundError, match=r"holds no config\.json"):
        LLMLingua2.load(tmp_path)


def test_bm25_prefers_rare_words_and_keeps_the_order_of_equals() -> None:
    index = Bm25(["common word here", "common rare here", "common word there", ""])
    assert index.ranking("common rare")[0] == 1
    assert index.ranking("nothing")[:3] == [0, 1, 2]
    assert Bm25([]).ranking("x") == []
