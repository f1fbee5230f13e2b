"""One output judged, and many of them summed up by suite and ratio."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.quality.case import Case
from benchmarks.quality.families import family_of


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one output kept: shares from 0 to 1 by measure. The figures of the receipt are absent for a baseline."""

    case: str
    suite: str
    ratio: float
    selector: str
    measures: Mapping[str, float]
    has_evidence: bool
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
    percents: Mapping[str, float]
    mean_ratio: float | None
    mean_ratio_error: float | None
    worst_ratio_error: float | None
    over_target_percent: float | None
    latency_ms_p50: float | None
    latency_ms_p95: float | None


def ratios_of(suite: str) -> tuple[float, ...]:
    return family_of(suite).ratios


def judge(
    case: Case, ratio: float, selector: str, output: str, *, measured_ratio: float | None = None,
    latency_ms: float | None = None, flags: tuple[str, ...] = (),
) -> Outcome:  # fmt: skip
    """The suite's own measures of what an output kept."""
    family = family_of(case.suite)
    measures = family.measure(case, output)
    return Outcome(
        case.name, case.suite, ratio, selector, measures, measures[family.decisive] >= family.enough,
        measured_ratio, latency_ms, flags,
    )  # fmt: skip


def summarise(outcomes: Sequence[Outcome]) -> list[Summary]:
    """One line for each suite, ratio and selector, in the order of the outcomes."""
    groups: dict[tuple[str, float, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.suite, outcome.ratio, outcome.selector), []).append(outcome)
    return [_summary(*key, group) for key, group in groups.items()]


def _summary(suite: str, ratio: float, selector: str, group: Sequence[Outcome]) -> Summary:
    measured = [outcome.measured_ratio for outcome in group if outcome.measured_ratio is not None]
    times = [outcome.latency_ms for outcome in group if outcome.latency_ms is not None]
    names = dict.fromkeys(name for outcome in group for name in outcome.measures)
    errors = [abs(value - ratio) for value in measured]
    return Summary(
        suite, ratio, selector, len(group),
        percents={name: _percent(name, group) for name in names},
        mean_ratio=statistics.fmean(measured) if measured else None,
        mean_ratio_error=statistics.fmean(errors) if errors else None,
        worst_ratio_error=max(errors) if errors else None,
        over_target_percent=100 * statistics.fmean(value > ratio + 1e-9 for value in measured) if measured else None,
        latency_ms_p50=_percentile(times, 0.5),
        latency_ms_p95=_percentile(times, 0.95),
    )  # fmt: skip


def _percent(measure: str, group: Sequence[Outcome]) -> float:
    """The mean over the outcomes that have the measure."""
    return 100 * statistics.fmean(
        outcome.measures[measure] for outcome in group if measure in outcome.measures
    )


def _percentile(values: Sequence[float], share: float) -> float | None:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None
