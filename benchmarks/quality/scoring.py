"""One output judged, and many of them summed up by suite and size."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.evaluation.case import Task
from benchmarks.evaluation.suites.families import family_of

WARNING = frozenset({"warning", "critical"})


@dataclass(frozen=True, slots=True)
class Told:
    """What the receipt of an output says; `flags` are severities by code."""

    ratio: float
    latency_ms: float
    flags: Mapping[str, str] = field(default_factory=dict)
    evidence_kept_probability: float | None = None

    @property
    def warns(self) -> bool:
        return not WARNING.isdisjoint(self.flags.values())


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one output kept: shares from 0 to 1 by measure. A baseline has no receipt.

    `ratio` and `keep` are what was asked for, one of them; `has_evidence` whether what counts most was kept.
    """

    case: str
    suite: str
    ratio: float | None
    keep: float | None
    selector: str
    measures: Mapping[str, float]
    has_evidence: bool
    told: Told | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """Outcomes of one suite, size and selector. Errors are of the measured ratio against the target.

    `losses_warned_percent`: of the outputs that lost their evidence, those with a flag of severity warning or more;
    `kept_warned_percent`: of those that kept it. None where there is no such output.
    """

    suite: str
    ratio: float | None
    keep: float | None
    selector: str
    cases: int
    percents: Mapping[str, float]
    evidence_percent: float
    mean_ratio: float | None
    mean_ratio_error: float | None
    worst_ratio_error: float | None
    over_target_percent: float | None
    latency_ms_p50: float | None
    latency_ms_p95: float | None
    losses_warned_percent: float | None
    kept_warned_percent: float | None


def judge(task: Task, selector: str, output: str, told: Told | None = None) -> Outcome:
    """The suite's own measures of what an output kept."""
    case, family = task.case, family_of(task.case.suite)
    measures = family.measure(case, output)
    return Outcome(
        case.name, case.suite, task.ratio, task.keep, selector, measures,
        measures[family.decisive] >= family.enough, told,
    )  # fmt: skip


def summarise(outcomes: Sequence[Outcome]) -> list[Summary]:
    """One line for each suite, size and selector, in the order of the outcomes."""
    groups: dict[tuple[str, float | None, float | None, str], list[Outcome]] = {}
    for outcome in outcomes:
        key = (outcome.suite, outcome.ratio, outcome.keep, outcome.selector)
        groups.setdefault(key, []).append(outcome)
    return [_summary(*key, group) for key, group in groups.items()]


def _summary(
    suite: str, ratio: float | None, keep: float | None, selector: str, group: Sequence[Outcome]
) -> Summary:
    told = [outcome.told for outcome in group if outcome.told is not None]
    measured = [receipt.ratio for receipt in told]
    errors = [abs(value - ratio) for value in measured] if ratio is not None else []
    over = [value > ratio + 1e-9 for value in measured] if ratio is not None else []
    times = [receipt.latency_ms for receipt in told]
    had = {name for outcome in group for name in outcome.measures}
    names = [name for name in family_of(suite).names if name in had]
    return Summary(
        suite, ratio, keep, selector, len(group),
        percents={name: _percent_of(name, group) for name in names},
        evidence_percent=100 * statistics.fmean(outcome.has_evidence for outcome in group),
        mean_ratio=_mean(measured),
        mean_ratio_error=_mean(errors),
        worst_ratio_error=max(errors, default=None),
        over_target_percent=_percent(over),
        latency_ms_p50=percentile(times, 0.5),
        latency_ms_p95=percentile(times, 0.95),
        losses_warned_percent=warned_percent(group, has_evidence=False),
        kept_warned_percent=warned_percent(group, has_evidence=True),
    )  # fmt: skip


def warned_percent(outcomes: Sequence[Outcome], *, has_evidence: bool) -> float | None:
    """Of the outputs with a receipt that have their evidence, or of those that lost it, the share with a warning."""
    return _percent([
        outcome.told.warns
        for outcome in outcomes
        if outcome.told is not None and outcome.has_evidence == has_evidence
    ])  # fmt: skip


def _percent_of(measure: str, group: Sequence[Outcome]) -> float:
    """The mean over the outcomes that have the measure."""
    return 100 * statistics.fmean(
        outcome.measures[measure] for outcome in group if measure in outcome.measures
    )


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _percent(claims: Sequence[bool]) -> float | None:
    return 100 * statistics.fmean(claims) if claims else None


def percentile(values: Sequence[float], share: float) -> float | None:
    """`share` from 0 to 1; None of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None
