"""What the calibrations are fitted on, and the page that says how well they hold."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.evaluation.case import Case, Need
from benchmarks.training.calibration.logs import log_cases
from benchmarks.training.calibration.questions import question_of, share_kept
from benchmarks.training.calibration.report import FIGURES, PAGE, publish
from compression.calibration.signals import NAMES
from compression.pipeline.compression_model import CompressionResult, Receipt
from compression.source.units import Slice
from compression.tuning.artefact import NoBars, entry_of
from compression.tuning.observing import RATIOS, Observed


def result(output: str, *kept: tuple[int, int]) -> CompressionResult:
    receipt = Receipt(10, 5, 0.5, 1.0, "t", ())
    return CompressionResult(output, receipt, tuple(Slice(*one) for one in kept))


def test_each_log_asks_for_kinds_of_errors_that_it_has() -> None:
    cases = list(log_cases(12))
    assert cases == list(log_cases(12))
    for case in cases:
        assert case.needs
        for need in case.needs:
            assert all("\n" not in case.context[start:end] for start, end in need.spans)
        assert question_of(case).holds(result(case.context, (0, len(case.context))))
        assert not question_of(case).holds(result(""))


def test_a_suite_is_judged_as_the_benchmark_judges_it() -> None:
    case = Case("nq", "nq-1", "Who?", "Ada ran it. Bob slept.", (), answers=("ada",))
    assert question_of(case).holds(result("Ada ran it."))
    assert not question_of(case).holds(result("Bob slept."))


def test_trials_of_one_task_are_never_on_both_sides_of_a_split() -> None:
    needs = (Need("x", ((0, 1),)),)
    names = ("tau_airline_dev_json-7-3-0", "tau_airline_dev_text-7-8-1")
    cases = [Case(name.split("-")[0], name, "q", "x", (), needs=needs) for name in names]
    assert len({question_of(case).group for case in cases}) == 1


def test_what_is_kept_of_a_span_is_a_share() -> None:
    assert share_kept([Slice(0, 5), Slice(8, 20)], (3, 10)) == pytest.approx(4 / 7)


def observed(number: int, suite: str) -> Observed:
    rng = np.random.default_rng(number)
    signals = rng.normal(size=(len(RATIOS), len(NAMES))).astype(np.float32)
    signals[:, NAMES.index("ratio")] = np.log(RATIOS)
    kept = np.arange(len(RATIOS)) >= number % 9
    return Observed(suite, f"g{number}", "prose", frozenset({"latin"}), 300, signals, np.array(RATIOS), kept)


def test_the_page_has_every_suite_and_its_diagram_every_figure(tmp_path: Path) -> None:
    fitted = entry_of(
        "pith-x",
        [observed(n, ("one", "two_a", "two_b")[n % 3]) for n in range(60)],
        NoBars(),
        leave_families_out=True,
    )
    publish({"lexical": fitted}, tmp_path, tmp_path / "figures", "the command")
    page = (tmp_path / PAGE).read_text()
    assert "    the command\n" in page and "## `lexical`" in page
    assert all(
        f"| {suite} | 280 |" in page and f"| {suite} | 20 |" in page for suite in ("one", "two_a", "two_b")
    )
    figures = json.loads((tmp_path / "figures" / FIGURES).read_text())
    assert figures["lines"]["lexical"].keys() == {"other questions seen", "no suite of the family seen"}
    assert 0 <= figures["errors"]["lexical"] <= 1
    assert fitted.other is not None and not np.allclose(fitted.other[0], fitted.apart[0])
