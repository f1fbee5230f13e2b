"""Everything that was measured: each outcome in JSON, one page of tables, and plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from benchmarks.evaluation.suites.families import family_of
from benchmarks.load import plots
from benchmarks.load.machine import Facts
from benchmarks.load.report import Report
from benchmarks.quality import flagged, receipts, tables
from benchmarks.quality.scoring import Outcome, Summary, summarise
from benchmarks.quality.targets import CALIBRATION_ERROR, KEPT_WARNED, LOSSES_WARNED

# Baselines that do not look at the question, those that know one kind of context, and those for any context.
BLIND = ("head", "tail", "random")
MADE = dict.fromkeys(("follow titles", "new identifiers", "level order"), "made for the suite")
GENERAL = tuple(name for name in tables.COMPARED if name not in tables.SPECIAL)
NOTE = (
    f"Targets: of losses at least {LOSSES_WARNED}% warn (a flag of severity warning or more), of the kept at most "
    f"{KEPT_WARNED}%; calibration error at most {CALIBRATION_ERROR}. Times are of each ratio, the largest first."
)


def report(facts: Facts, outcomes: Sequence[Outcome]) -> Report:
    summaries = summarise(outcomes)
    model = outcomes[0].selector
    body = {
        "summaries": [asdict(summary) for summary in summaries],
        "outcomes": [asdict(outcome) for outcome in outcomes],
    }
    pictures = {"quality": kept(summaries), "latency": times(summaries)}
    if reliable := flagged.picture(outcomes, model):
        pictures["reliability"] = reliable
    return Report("quality", "Compression quality", facts, page(outcomes, summaries, model), body, pictures)


def page(outcomes: Sequence[Outcome], summaries: Sequence[Summary], model: str) -> list[str]:
    """The tables, each under a heading; those that have no row are left out."""
    sections = {
        "Kept, compared with the targets": (tables.kept(summaries), ""),
        "Compared with baselines": (tables.compared(summaries), ""),
    }
    for each in receipts.models(outcomes):
        sections[f"Receipts of `{each}`"] = (receipts.receipts(outcomes, each), NOTE)
    sections["Reliability"] = (flagged.reliability(outcomes, model), "")
    return [
        line
        for heading, (rows, note) in sections.items()
        if rows
        for line in (f"## {heading}", "", *([note, ""] if note else []), *rows, "")
    ]


def kept(summaries: Sequence[Summary]) -> plots.Picture:
    """What is kept against the ratio, a panel a suite; in grey what reads no word of the question."""
    found = []
    for suite, group in tables.by_suite(summaries).items():
        decisive = family_of(suite).decisive
        every = {
            _legend(name, group): _points(
                group, [s.percents[decisive] if s.selector == name else None for s in group]
            )
            for name in _in_one_order([summary.selector for summary in group])
        }
        lines = {name: points for name, points in every.items() if name not in BLIND}
        blind = {name: points for name, points in every.items() if name in BLIND}
        title = f"{suite}\n{decisive}"
        found.append(plots.Panel(title, "target ratio", "kept (%)", lines, log_x=True, top=100, guides=blind))
    return plots.Picture(takeaway(summaries), found)


def _legend(name: str, group: Sequence[Summary]) -> str:
    """A slow model is asked for fewer cases, and says so."""
    cases = next(summary.cases for summary in group if summary.selector == name)
    return MADE.get(name, name if cases == group[0].cases else f"{name}, {cases} cases")


def takeaway(summaries: Sequence[Summary]) -> str:
    """Suite by suite and ratio by ratio: whether the model keeps at least what the best general baseline does."""
    model, won, all_of_them = summaries[0].selector, 0, 0
    for suite, group in tables.by_suite(summaries).items():
        shares = {(s.selector, s.ratio): s.percents[family_of(suite).decisive] for s in group}
        for ratio in {s.ratio for s in group}:
            others = [shares[name, ratio] for name in GENERAL if (name, ratio) in shares]
            if others and (model, ratio) in shares:
                all_of_them += 1
                won += shares[model, ratio] >= max(others)
    if not all_of_them:
        return f"What {model} keeps by ratio"
    where = f"{won} of {all_of_them}" if won < all_of_them else f"all {won}"
    return f"In {where} pairs of suite and ratio, {model} keeps at least as much as any general baseline"


def times(summaries: Sequence[Summary]) -> plots.Picture:
    """What receipts tell of time: a panel for the median and one for the slowest, a row a suite, a colour a ratio."""
    model = summaries[0].selector
    groups = {
        suite: own
        for suite, group in tables.by_suite(summaries).items()
        if (own := [s for s in group if s.selector == model and s.latency_ms_p50 is not None])
    }
    groups = dict(sorted(groups.items(), key=lambda item: max(s.latency_ms_p50 or 0.0 for s in item[1])))
    ratios = sorted({s.ratio for own in groups.values() for s in own if s.ratio is not None})
    every = [s for own in groups.values() for s in own]
    figures = {
        "p50": {(s.suite, s.ratio): s.latency_ms_p50 or 0.0 for s in every},
        "p95": {(s.suite, s.ratio): s.latency_ms_p95 or 0.0 for s in every},
    }
    panels = [
        plots.Panel(
            name, "ms", "",
            {f"ratio {ratio:g}": [(of[s.suite, ratio], at) for at, own in enumerate(groups.values())
                                  for s in own if s.ratio == ratio] for ratio in ratios},
            log_x=True, continuous_x=True, rows=list(groups),
        )
        for name, of in figures.items()
    ]  # fmt: skip
    return plots.Picture(_slowest(model, groups), panels)


def _slowest(model: str, groups: Mapping[str, Sequence[Summary]]) -> str:
    medians = {suite: max(s.latency_ms_p50 or 0.0 for s in own) for suite, own in groups.items()}
    if not medians:
        return f"How long {model} takes"
    suite = max(medians, key=lambda name: medians[name])
    return (
        f"Half of {model}'s answers take at most {medians[suite]:,.0f} ms, whatever the suite and the ratio"
    )


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
