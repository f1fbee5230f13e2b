"""The page: what was kept beside targets and baselines, who was warned, what promises came to, and where it is put."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.evaluation.case import Case, Need, Task
from benchmarks.evaluation.datasets import Records
from benchmarks.evaluation.suites import plain
from benchmarks.quality import document, flagged, receipts, report, tables
from benchmarks.quality.scoring import Outcome, Told, judge, summarise
from benchmarks.quality.targets import target_of

CASE = next(plain.record_cases([Records((("a", "1"), ("b", "2")), "b", "2")], "kv_75"))
WARNS = {"low_relevance": "warning"}
KEPT, LOST = '{"b": "2"}', "{}"


def outcome(
    told: Told | None, output: str, *, ratio: float | None = 0.25, keep: float | None = None
) -> Outcome:
    return judge(Task(CASE, ratio, keep), "lexical", output, told)


OUTCOMES = [
    outcome(Told(0.24, 3.0), KEPT),
    outcome(Told(0.12, 5.0, WARNS), LOST, ratio=0.1),
    judge(Task(CASE, 0.25), "head", '{"a": "1"}'),
    judge(Task(CASE, 0.1), "head", ""),
]


def test_outcomes_are_summed_up_by_selector_and_ratio() -> None:
    summaries = summarise(OUTCOMES)
    assert [summary.percents["pair"] for summary in summaries] == [100, 0, 0, 0]
    assert [summary.percents["parses"] for summary in summaries] == [100, 100, 100, 0]
    assert [summary.losses_warned_percent for summary in summaries] == [None, 100, None, None]
    assert [summary.kept_warned_percent for summary in summaries] == [0, None, None, None]
    assert [summary.over_target_percent for summary in summaries] == [0, 100, None, None]
    assert summaries[1].worst_ratio_error == pytest.approx(0.02)


def test_a_report_has_figures_tables_and_a_plot(tmp_path: Path) -> None:
    made = report.report({"model": "lexical"}, OUTCOMES)
    as_json, as_text, picture, _ = made.write(tmp_path)
    page = as_text.read_text(encoding="utf-8")
    assert "| kv_75 (1) | pair | .25 / .1 | 100 / 100 / 100 | 100.0 / 0.0 |" in page
    assert "| kv_75 (1) | parses | .25 / .1 | 100 / 100 / 100 | 100.0 / 100.0 |" in page
    assert "| kv_75 | pair | 100.0 / 0.0 | 0.0 / 0.0 |  |" in page
    assert "| kv_75 (2) | 50.0 | 100 / 0 |  |  | 0.0150, 0.0200 | 100.0 | 3 / 5 | 3 / 5 |" in page
    body = json.loads(as_json.read_text(encoding="utf-8"))
    assert body["facts"] == {"model": "lexical"}
    assert [one["told"] and one["told"]["latency_ms"] for one in body["outcomes"]] == [3.0, 5.0, None, None]
    assert picture.read_bytes().startswith(b"\x89PNG")
    [panel] = made.pictures["quality"].panels
    assert panel.title == "kv_75\npair"
    assert panel.lines["lexical"] == [(0.1, 0.0), (0.25, 100.0)]
    assert panel.guides["head"] == [(0.1, 0.0), (0.25, 0.0)]
    assert made.pictures["quality"].title == (
        "In all 2 pairs of suite and ratio, lexical keeps at least as much as any general baseline"
    )
    half, slowest = made.pictures["latency"].panels
    assert half.rows == slowest.rows == ["kv_75"]
    assert half.lines == {"ratio 0.1": [(5.0, 0)], "ratio 0.25": [(3.0, 0)]}
    assert "at most 5 ms" in made.pictures["latency"].title


def test_a_slow_model_says_for_how_many_cases_its_figures_are() -> None:
    other = next(plain.record_cases([Records((("a", "1"),), "a", "1")], "kv_75"))
    slow = judge(Task(CASE, 0.25), "encoder", KEPT, Told(0.24, 900.0))
    both = [outcome(Told(0.2, 3.0), KEPT), judge(Task(other, 0.25), "lexical", "{}", Told(0.2, 3.0)), slow]
    assert tables.kept(summarise(both))[2].endswith("| 50.0 | 100.0 (1) |")


@pytest.mark.parametrize(
    ("said", "kept", "error"),
    [
        ([0.95] * 4, [True] * 4, 0.05),
        ([0.9, 0.9, 0.1, 0.1], [True, True, False, False], 0.1),
        ([0.95, 0.95], [False, False], 0.95),
        ([1.0, 0.0], [True, False], 0.0),
        ([0.25, 0.45], [True, False], (0.75 + 0.45) / 2),
    ],
)
def test_the_calibration_error_is_the_gap_of_each_tenth_by_its_outputs(
    said: list[float], kept: list[bool], error: float
) -> None:
    outcomes = [
        outcome(Told(0.2, 1.0, {}, probability), KEPT if is_kept else LOST)
        for probability, is_kept in zip(said, kept, strict=True)
    ]
    assert flagged.calibration_error(outcomes) == pytest.approx(error)
    assert sum(each.outputs for each in flagged.bins(outcomes)) == len(said)


def test_without_probabilities_there_is_no_diagram_and_no_error() -> None:
    assert flagged.calibration_error(OUTCOMES) is None
    assert flagged.reliability(OUTCOMES, "lexical") == []
    assert list(report.report({}, OUTCOMES).pictures) == ["quality", "latency"]


def test_flags_are_counted_over_all_ratios_of_a_suite_and_over_everything() -> None:
    outcomes = [
        outcome(Told(0.2, 1.0, WARNS, 0.3), LOST), outcome(Told(0.2, 1.0, {"x": "info"}, 0.5), LOST, ratio=0.1),
        outcome(Told(0.2, 1.0, WARNS, 0.7), KEPT), *[outcome(Told(0.2, 1.0, {}, 0.9), KEPT)] * 3,
    ]  # fmt: skip
    _, _, suite, everything = receipts.receipts(outcomes, "lexical")
    assert suite.startswith("| kv_75 (6) | 33.3 | 50 / 25 | 0.70 | 0.233 |")
    assert everything.startswith("| all (6) | 33.3 | 50 / 25 | 0.70 | 0.233 |")
    assert list(report.report({}, outcomes).pictures) == ["quality", "latency", "reliability"]


def test_a_promise_is_told_by_what_it_kept_and_what_that_took() -> None:
    outcomes = [
        outcome(Told(ratio, 1.0), output, ratio=None, keep=0.95)
        for ratio, output in ((0.1, KEPT), (0.2, KEPT), (0.3, LOST), (0.6, KEPT))
    ]
    head, _, row, _ = receipts.receipts(outcomes, "lexical")
    assert head.endswith("| keep 0.95: kept (%) | mean ratio | p10 / p50 / p90 |")
    assert row.startswith("| kv_75 (4) |") and row.endswith("| 75.0 | 0.300 | 0.10 / 0.30 / 0.60 |")
    assert "keep" not in receipts.receipts(OUTCOMES, "lexical")[0]
    assert flagged.by_suite(outcomes, "lexical") == {}


def test_each_model_that_kept_a_promise_has_a_table_and_a_target_is_beside_its_ratio() -> None:
    promised = [
        Outcome("x", "nq", None, 0.95, "encoder", {"answer": 1.0}, has_evidence=True, told=Told(0.25, 1.0))
    ]
    assert receipts.models([*OUTCOMES, *promised]) == ["lexical", "encoder"]
    assert receipts.models(OUTCOMES) == ["lexical"]
    assert "| 100.0 | 0.250 (≤ 0.3) |" in receipts.receipts(promised, "encoder")[2]


def test_the_measured_part_of_a_page_is_replaced_and_the_rest_stays(tmp_path: Path) -> None:
    page = tmp_path / "quality.md"
    page.write_text(
        f"# Mine\n\nIntro.\n\n{document.BEGIN}\nold\n{document.END}\n\n## Rest\n", encoding="utf-8"
    )
    made = report.report({"command": "python -m benchmarks.quality", "server": "http://x"}, OUTCOMES)
    written = document.write(page, made)
    text = page.read_text(encoding="utf-8")
    assert [path.name for path in written] == ["quality.md", "quality.png", "quality-latency.png"]
    assert text.startswith("# Mine\n\nIntro.\n") and text.endswith(f"{document.END}\n\n## Rest\n")
    assert "old" not in text and "http://x" not in text and "(quality.png)" in text
    assert "- command: python -m benchmarks.quality" in text and "## Kept, compared with the targets" in text
    document.write(page, made)
    assert page.read_text(encoding="utf-8") == text


def test_a_page_without_the_marks_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Mine\n", encoding="utf-8")
    with pytest.raises(document.NoPlace, match=r"page\.md has no line"):
        document.check(page)
    with pytest.raises(FileNotFoundError):
        document.check(tmp_path / "none.md")


def test_targets_are_of_families_and_none_of_suites_without_titles() -> None:
    assert target_of("hotpot_dev", 0.25, "all evidence") == 87
    assert target_of("hotpot_dev_bare", 0.25, "all evidence") is None
    assert (target_of("xquad_en", 0.1, "answer"), target_of("xquad_zh", 0.1, "answer")) == (96, 97)
    assert target_of("papers_nq", 0.1, "answer") is None


def test_baselines_made_for_one_kind_of_context_share_a_column() -> None:
    log = Case("logs_x", "logs_x-0", "q", "a\nb", ((0, 1), (2, 3)), needs=(Need("a", ((0, 1),)),))
    outcomes = [
        judge(Task(log, 0.1), "lexical", "a", Told(0.1, 1.0)), judge(Task(log, 0.1), "level order", "b"),
        judge(Task(log, 0.1), "tail", "a"),
    ]  # fmt: skip
    head, _, row = tables.compared(summarise(outcomes))
    assert head == "| suite | kept (%) | lexical | tail | made for it |"
    assert row == "| logs_x | all kinds | 100.0 | 100.0 | level order: 0.0 |"
