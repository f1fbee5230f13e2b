"""One output judged, and many of them summed up by suite and ratio."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.quality.contexts import Case
from benchmarks.quality.metrics import evidence_kept, holds_answer, pair_kept, parses

RATIOS = {
    "nq": (0.5, 0.25, 0.1, 0.05),
    "qmsum": (0.5, 0.33, 0.2, 0.1),
    "xquad": (0.5, 0.25, 0.1),
    "kv": (0.5, 0.25, 0.1),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one output kept, from 0 to 1. The figures of the receipt are absent for a baseline."""

    case: str
    suite: str
    ratio: float
    selector: str
    kept: float
    parses: bool | None = None
    measured_ratio: float | None = None
    latency_ms: float | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """Outcomes of one suite, ratio and selector. Errors are of the measured ratio against the target."""

    suite: str
    ratio: float
    selector: str
    cases: int
    kept_percent: float
    parses_percent: float | None
    mean_ratio: float | None
    mean_ratio_error: float | None
    worst_ratio_error: float | None
    over_target_percent: float | None
    latency_ms_p50: float | None
    latency_ms_p95: float | None


def ratios_of(suite: str) -> tuple[float, ...]:
    return RATIOS[suite.split("_")[0]]


def kept_of(case: Case, output: str) -> float:
    """The suite's own measure of what an output kept."""
    if case.suite.startswith("kv"):
        return float(pair_kept(output, *case.answers))
    if case.suite.startswith("qmsum"):
        return evidence_kept(case.context, case.evidence, output)
    return float(holds_answer(output, case.answers))


def judge(
    case: Case, ratio: float, selector: str, output: str, *, measured_ratio: float | None = None,
    latency_ms: float | None = None, flags: tuple[str, ...] = (),
) -> Outcome:  # fmt: skip
    is_json = parses(output) if case.suite.startswith("kv") else None
    return Outcome(
        case.name,
        case.suite,
        ratio,
        selector,
        kept_of(case, output),
        is_json,
        measured_ratio,
        latency_ms,
        flags,
    )


def summarise(outcomes: Sequence[Outcome]) -> list[Summary]:
    """One line for each suite, ratio and selector, in the order of the outcomes."""
    groups: dict[tuple[str, float, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.suite, outcome.ratio, outcome.selector), []).append(outcome)
    return [_summary(*key, group) for key, group in groups.items()]


def _summary(suite: str, ratio: float, selector: str, group: Sequence[Outcome]) -> Summary:
    measured = [outcome.measured_ratio for outcome in group if outcome.measured_ratio is not None]
    times = [outcome.latency_ms for outcome in group if outcome.latency_ms is not None]
    are_json = [outcome.parses for outcome in group if outcome.parses is not None]
    errors = [abs(value - ratio) for value in measured]
    return Summary(
        suite, ratio, selector, len(group),
        kept_percent=100 * statistics.fmean(outcome.kept for outcome in group),
        parses_percent=100 * statistics.fmean(are_json) if are_json else None,
        mean_ratio=statistics.fmean(measured) if measured else None,
        mean_ratio_error=statistics.fmean(errors) if errors else None,
        worst_ratio_error=max(errors) if errors else None,
        over_target_percent=100 * statistics.fmean(value > ratio + 1e-9 for value in measured) if measured else None,
        latency_ms_p50=_percentile(times, 0.5),
        latency_ms_p95=_percentile(times, 0.95),
    )  # fmt: skip


def _percentile(values: Sequence[float], share: float) -> float | None:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None
