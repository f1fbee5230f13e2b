"""One table of everything: a row for each suite and selector, a column for each size."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.load.report import table
from benchmarks.quality.scoring import Summary

HEAD = ("suite", "selector", "cases", "measure (%)", "by size", "losses / kept that warn (%)", "mean ratio")


def table_of(summaries: Sequence[Summary]) -> list[str]:
    groups: dict[tuple[str, str], list[Summary]] = {}
    for summary in summaries:
        groups.setdefault((summary.suite, summary.selector), []).append(summary)
    return table(HEAD, [_row(suite, selector, group) for (suite, selector), group in groups.items()])


def _row(suite: str, selector: str, group: Sequence[Summary]) -> list[str]:
    names = list(dict.fromkeys(name for summary in group for name in summary.percents))
    by_size = [
        f"{size_of(one)}: "
        + " / ".join(f"{one.percents[name]:.1f}" for name in names if name in one.percents)
        for one in group
    ]
    warned = [
        f"{_whole(one.losses_warned_percent)} / {_whole(one.kept_warned_percent)}"
        for one in group
        if one.mean_ratio is not None
    ]
    ratios = [f"{one.mean_ratio:.3f}" for one in group if one.mean_ratio is not None]
    return [
        suite, selector, str(group[0].cases), " / ".join(names), ", ".join(by_size), ", ".join(warned),
        ", ".join(ratios),
    ]  # fmt: skip


def size_of(summary: Summary) -> str:
    return f"{summary.ratio:g}" if summary.ratio is not None else f"keep {summary.keep:g}"


def _whole(percent: float | None) -> str:
    return "" if percent is None else f"{percent:.0f}"
