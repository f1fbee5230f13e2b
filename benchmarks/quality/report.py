"""Everything that was measured: each outcome in JSON, one page of tables, and plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from benchmarks.load import plots
from benchmarks.load.machine import Facts
from benchmarks.load.report import Report
from benchmarks.quality import flagged, promised, tables
from benchmarks.quality.families import family_of
from benchmarks.quality.scoring import Outcome, Summary, summarise
from benchmarks.quality.targets import CALIBRATION_ERROR, KEPT_WARNED, LOSSES_WARNED


def report(facts: Facts, outcomes: Sequence[Outcome]) -> Report:
    summaries = summarise(outcomes)
    model = outcomes[0].selector
    body = {
        "summaries": [asdict(summary) for summary in summaries],
        "outcomes": [asdict(outcome) for outcome in outcomes],
    }
    pictures = {"quality": panels(summaries), "latency": times(summaries, outcomes)}
    if reliable := flagged.panels(outcomes, model):
        pictures["reliability"] = reliable
    return Report("quality", "Compression quality", facts, page(outcomes, summaries, model), body, pictures)


def page(outcomes: Sequence[Outcome], summaries: Sequence[Summary], model: str) -> list[str]:
    """The tables, each under a heading; those that have no row are left out."""
    warned = f"Targets: of losses at least {LOSSES_WARNED}% warn, of the kept at most {KEPT_WARNED}%; "
    sections = {
        "Kept, beside the targets": (tables.kept(summaries), ""),
        "Beside baselines": (tables.compared(summaries), ""),
        f"Flags of `{model}`": (
            flagged.flags(outcomes, model),
            f"{warned}calibration error at most {CALIBRATION_ERROR}. A flag of severity warning or more warns.",
        ),
        "Reliability": (flagged.reliability(outcomes, model), ""),
        "A promise in place of a ratio": (promised.promises(outcomes), ""),
        f"Receipts of `{model}`": (tables.receipts(summaries), "Times are of each ratio, the largest first."),
    }
    return [
        line
        for heading, (rows, note) in sections.items()
        if rows
        for line in (f"## {heading}", "", *([note, ""] if note else []), *rows, "")
    ]


def panels(summaries: Sequence[Summary]) -> list[plots.Panel]:
    """What is kept against the ratio, a panel a suite."""
    found = []
    for suite, group in tables.by_suite(summaries).items():
        decisive = family_of(suite).decisive
        lines = {
            name: _points(group, [s.percents[decisive] if s.selector == name else None for s in group])
            for name in _in_one_order([summary.selector for summary in group])
        }
        found.append(plots.Panel(suite, "target ratio", f"{decisive} (%)", lines, log_x=True))
    return found


def times(summaries: Sequence[Summary], outcomes: Sequence[Outcome]) -> list[plots.Panel]:
    """What receipts tell of time: by ratio, and all of them."""
    model = outcomes[0].selector
    latency = {
        suite: _points(group, [s.latency_ms_p50 if s.selector == model else None for s in group])
        for suite, group in tables.by_suite(summaries).items()
    }
    told: dict[str, list[float]] = {}
    for outcome in outcomes:
        if outcome.told is not None and outcome.selector == model:
            told.setdefault(outcome.suite, []).append(outcome.told.latency_ms)
    by_ratio = plots.Panel("latency by ratio", "target ratio", "p50 ms", latency, log_x=True)
    return [by_ratio, plots.distribution("latency", "ms", told)]


def _in_one_order(selectors: Sequence[str]) -> list[str]:
    """The first, the baselines, then what few suites have: so that a line has one colour in most panels."""
    names = dict.fromkeys(selectors)
    common = [name for name in tables.COMPARED if name in names and name not in tables.SPECIAL]
    return list(dict.fromkeys([selectors[0], *common, *names]))


def _points(group: Sequence[Summary], values: Sequence[float | None]) -> plots.Points:
    """Values against ratios; absent ones are left out."""
    return sorted(
        (summary.ratio, value)
        for summary, value in zip(group, values, strict=True)
        if summary.ratio is not None and value is not None
    )
