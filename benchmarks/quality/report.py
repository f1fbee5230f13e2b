"""What is kept against the ratio: every outcome in JSON, Markdown tables and a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from benchmarks.load import plots
from benchmarks.load.machine import Facts
from benchmarks.load.report import Report, table
from benchmarks.quality.families import family_of
from benchmarks.quality.overview import size_of
from benchmarks.quality.scoring import Outcome, Summary, summarise

RECEIPT_HEAD = (
    "suite", "target", "cases", "mean ratio", "mean error", "worst error", "over target (%)", "p50 ms", "p95 ms",
)  # fmt: skip


def title(suite: str) -> str:
    return f"{suite}: {family_of(suite).title} (%)"


def suites(summaries: Sequence[Summary]) -> dict[str, list[Summary]]:
    found: dict[str, list[Summary]] = {}
    for summary in summaries:
        found.setdefault(summary.suite, []).append(summary)
    return found


def kept(summaries: Sequence[Summary]) -> list[str]:
    """Selectors down, sizes across; several measures with strokes between them."""
    sizes = list(dict.fromkeys(map(size_of, summaries)))
    selectors = list(dict.fromkeys(summary.selector for summary in summaries))
    names = list(dict.fromkeys(name for summary in summaries for name in summary.percents))
    shares = {(summary.selector, size_of(summary)): summary.percents for summary in summaries}
    rows = [
        [selector, *(_cells(shares.get((selector, size), {}), names) for size in sizes)]
        for selector in selectors
    ]
    return table([f"selector: {' / '.join(names)}", *sizes], rows)


def _cells(percents: Mapping[str, float], names: Sequence[str]) -> str:
    return " / ".join(f"{percents[name]:.1f}" for name in names if name in percents)


def receipts(summaries: Sequence[Summary]) -> list[str]:
    """What the receipts said: ratio and time."""
    rows = [
        [
            s.suite, size_of(s), str(s.cases), _cell(s.mean_ratio, 4), _cell(s.mean_ratio_error, 4),
            _cell(s.worst_ratio_error, 4), _cell(s.over_target_percent, 1), _cell(s.latency_ms_p50, 1),
            _cell(s.latency_ms_p95, 1),
        ]
        for s in summaries
        if s.mean_ratio is not None
    ]  # fmt: skip
    return table(RECEIPT_HEAD, rows)


def _cell(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def report(facts: Facts, outcomes: Sequence[Outcome]) -> Report:
    summaries = summarise(outcomes)
    lines = []
    for suite, group in suites(summaries).items():
        lines += [f"## {title(suite)}", "", f"{group[0].cases} cases", "", *kept(group), ""]
    lines += ["## Receipts", "", *receipts(summaries)]
    body = {
        "summaries": [asdict(summary) for summary in summaries],
        "outcomes": [asdict(outcome) for outcome in outcomes],
    }
    pictures = {"quality": panels(summaries, outcomes)}
    return Report("quality", "Compression quality", facts, lines, body, pictures)


def panels(summaries: Sequence[Summary], outcomes: Sequence[Outcome]) -> list[plots.Panel]:
    """What is kept against the ratio, a panel a suite; then the time that the receipts tell."""
    found = []
    latency: dict[str, plots.Points] = {}
    for suite, group in suites([summary for summary in summaries if summary.ratio is not None]).items():
        selectors = dict.fromkeys(summary.selector for summary in group)
        decisive = family_of(suite).decisive
        lines = {
            name: _points(group, [s.percents[decisive] if s.selector == name else None for s in group])
            for name in selectors
        }
        found.append(plots.Panel(suite, "target ratio", f"{decisive} (%)", lines, log_x=True))
        if points := _points(group, [summary.latency_ms_p50 for summary in group]):
            latency[suite] = points
    times = {
        suite: [o.told.latency_ms for o in outcomes if o.suite == suite and o.told is not None]
        for suite in latency
    }
    by_time = plots.Panel("latency by ratio", "target ratio", "p50 ms", latency, log_x=True)
    return [*found, by_time, plots.distribution("latency", "ms", times)]


def _points(group: Sequence[Summary], values: Sequence[float | None]) -> plots.Points:
    """Values against ratios; absent ones are left out."""
    return sorted(
        (summary.ratio, value)
        for summary, value in zip(group, values, strict=True)
        if summary.ratio is not None and value is not None
    )
