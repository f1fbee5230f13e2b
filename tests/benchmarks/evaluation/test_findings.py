"""Papers of made-up trials: one sentence answers, and methods name what was asked as well."""

from __future__ import annotations

from benchmarks.evaluation.metrics import tokens
from benchmarks.evaluation.suites import findings
from benchmarks.evaluation.suites.families import needs


def test_papers_are_the_same_each_time_and_half_are_held_out() -> None:
    made = list(findings.cases("findings", 6))
    assert made == list(findings.cases("findings", 6))
    assert sum(case.is_held_out for case in made) == 3


def test_the_result_alone_is_what_is_needed_and_stands_there_once() -> None:
    for case in findings.cases("findings", 6):
        (need,) = case.needs
        assert case.context.count(need.text) == 1
        assert needs(case, need.text) == {"evidence": 1.0, "all evidence": 1.0}
        assert needs(case, case.context.replace(need.text, "")) == {"evidence": 0.0, "all evidence": 0.0}
        assert len(tokens(case.context)) > 1_000


def test_methods_name_what_is_asked_before_results_do() -> None:
    for case in findings.cases("findings", 6):
        outcome = case.query.partition(" on ")[2].partition(", compared")[0]
        methods, _, results = case.context.partition("\n\nResults\n\n")
        assert methods.count(outcome) > 3
        assert case.needs[0].text in results
