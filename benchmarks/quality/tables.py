"""Tables of what was kept: pith beside the targets, then the baselines by the measure that counts most."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from benchmarks.evaluation.suites.families import family_of
from benchmarks.load.report import table
from benchmarks.quality.baselines import BASELINES
from benchmarks.quality.llmlingua2 import NAME
from benchmarks.quality.scoring import Summary
from benchmarks.quality.targets import target_of

COMPARED = (*BASELINES, NAME)
SPECIAL = tuple(name for name, baseline in BASELINES.items() if baseline.families is not None)


def by_suite(summaries: Sequence[Summary]) -> dict[str, list[Summary]]:
    """The summaries of each suite at its ratios."""
    found: dict[str, list[Summary]] = {}
    for summary in summaries:
        if summary.ratio is not None:
            found.setdefault(summary.suite, []).append(summary)
    return found


def selectors(summaries: Iterable[Summary], *, compared: bool) -> list[str]:
    """Those of the baselines, or those that a server ran, in the order that they come."""
    names = dict.fromkeys(summary.selector for summary in summaries)
    return [name for name in names if (name in COMPARED) == compared]


def kept(summaries: Sequence[Summary]) -> list[str]:
    """A row a suite and measure: targets, then what each model kept, by ratio."""
    models = selectors(summaries, compared=False)
    rows = [
        [f"{suite} ({group[0].cases})", measure, _ratios(group), _targets(suite, measure), *cells]
        for suite, group in by_suite(summaries).items()
        for measure in _measures(group)
        if any(cells := [_percents(group, model, measure) for model in models])
    ]
    return table(["suite (cases)", "kept (%)", "at ratios", "target", *models], rows)


def compared(summaries: Sequence[Summary]) -> list[str]:
    """A row a suite, by the measure that counts most; baselines made for one kind of context share a column."""
    models = selectors(summaries, compared=False)[:1]
    general = [name for name in selectors(summaries, compared=True) if name not in SPECIAL]
    rows = []
    for suite, group in by_suite(summaries).items():
        measure = family_of(suite).decisive
        cells = [_percents(group, name, measure) for name in [*models, *general]]
        made = [f"{name}: {cell}" for name in SPECIAL if (cell := _percents(group, name, measure))]
        rows.append([suite, measure, *cells, ", ".join(made)])
    return table(["suite", "kept (%)", *models, *general, "made for it"], rows)


def _measures(group: Sequence[Summary]) -> list[str]:
    had = {name for summary in group for name in summary.percents}
    return [name for name in family_of(group[0].suite).names if name in had]


def _ratios(group: Sequence[Summary]) -> str:
    sizes = dict.fromkeys(summary.ratio for summary in group if summary.ratio is not None)
    return " / ".join(_short(size) for size in sizes)


def _short(size: float) -> str:
    return f"{size:g}".removeprefix("0")


def _targets(suite: str, measure: str) -> str:
    found = [target_of(suite, ratio, measure) for ratio in family_of(suite).ratios]
    return " / ".join("-" if value is None else f"{value:g}" for value in found) if any(found) else ""


def _percents(group: Sequence[Summary], selector: str, measure: str) -> str:
    found: Mapping[float | None, float] = {
        summary.ratio: summary.percents[measure]
        for summary in group
        if summary.selector == selector and measure in summary.percents
    }
    figures = " / ".join(f"{value:.1f}" for value in found.values())
    cases = next((summary.cases for summary in group if summary.selector == selector), 0)
    # A slow model is asked for fewer cases.
    return f"{figures} ({cases})" if found and cases != group[0].cases else figures
