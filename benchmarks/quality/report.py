"""The figures as JSON, as a Markdown table and as a plot of what is kept against the ratio."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.quality.scoring import Summary

MEASURES = {
    "nq": "answer kept, 20 hard documents",
    "qmsum": "evidence kept, meetings",
    "xquad": "answer kept, ten paragraphs",
    "kv": "pair kept, JSON",
}


def title(suite: str) -> str:
    return f"{suite}: {MEASURES[suite.split('_')[0]]} (%)"


def suites(summaries: Sequence[Summary]) -> dict[str, list[Summary]]:
    found: dict[str, list[Summary]] = {}
    for summary in summaries:
        found.setdefault(summary.suite, []).append(summary)
    return found


def table(summaries: Sequence[Summary]) -> list[str]:
    """Selectors down, ratios across."""
    ratios = sorted({summary.ratio for summary in summaries}, reverse=True)
    selectors = list(dict.fromkeys(summary.selector for summary in summaries))
    kept = {(summary.selector, summary.ratio): summary.kept_percent for summary in summaries}
    lines = [
        "| selector | " + " | ".join(f"{ratio:g}" for ratio in ratios) + " |",
        "|---" * (len(ratios) + 1) + "|",
    ]
    for selector in selectors:
        cells = [f"{kept[selector, ratio]:.1f}" if (selector, ratio) in kept else "" for ratio in ratios]
        lines.append(f"| {selector} | " + " | ".join(cells) + " |")
    return lines


def receipts(summaries: Sequence[Summary]) -> list[str]:
    """What the receipts said: ratio and time."""
    lines = [
        "| suite | target | cases | mean ratio | mean error | worst error | over target (%) "
        "| p50 ms | p95 ms | JSON parses (%) |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for s in summaries:
        if s.mean_ratio is None:
            continue
        cells = [
            s.suite, f"{s.ratio:g}", str(s.cases), _cell(s.mean_ratio, 4), _cell(s.mean_ratio_error, 4),
            _cell(s.worst_ratio_error, 4), _cell(s.over_target_percent, 1), _cell(s.latency_ms_p50, 1),
            _cell(s.latency_ms_p95, 1), _cell(s.parses_percent, 1),
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _cell(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def markdown(summaries: Sequence[Summary], facts: Mapping[str, Any]) -> str:
    lines = ["# Compression quality", "", *(f"- {name}: {value}" for name, value in facts.items()), ""]
    for suite, group in suites(summaries).items():
        lines += [f"## {title(suite)}", "", f"{group[0].cases} cases", "", *table(group), ""]
    return "\n".join([*lines, "## Receipts", "", *receipts(summaries), ""])


def plot(path: Path, summaries: Sequence[Summary]) -> None:
    """What is kept against the ratio, a panel a suite."""
    import matplotlib  # Only this function needs it, and it is slow to import.

    matplotlib.use("Agg")
    from matplotlib import pyplot

    groups = suites(summaries)
    figure, axes = pyplot.subplots(
        1, len(groups), figsize=(4.2 * len(groups), 3.6), squeeze=False, sharey=True
    )
    for axis, (suite, group) in zip(axes[0], groups.items(), strict=True):
        for selector in dict.fromkeys(summary.selector for summary in group):
            points = sorted((s.ratio, s.kept_percent) for s in group if s.selector == selector)
            axis.plot(*zip(*points, strict=True), marker="o", markersize=3, label=selector)
        axis.set(title=suite, xlabel="target ratio", xscale="log", ylim=(0, 102))
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("kept (%)")
    axes[0][-1].legend(fontsize=7, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def write(folder: Path, summaries: Sequence[Summary], facts: Mapping[str, Any]) -> list[Path]:
    """quality.json, quality.md and quality.png in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    as_json, as_table, as_plot = (folder / f"quality.{ending}" for ending in ("json", "md", "png"))
    body = {"facts": dict(facts), "summaries": [asdict(summary) for summary in summaries]}
    as_json.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
    as_table.write_text(markdown(summaries, facts), encoding="utf-8")
    plot(as_plot, summaries)
    return [as_json, as_table, as_plot]
