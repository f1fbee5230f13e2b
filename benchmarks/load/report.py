"""Markdown tables, JSON with raw samples, and plots: what every benchmark writes, in the same words."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from benchmarks.load import plots
from benchmarks.load.exchange import Failed
from benchmarks.load.machine import Facts
from benchmarks.load.sample import Run, mean_tokens_per_s, percentile
from benchmarks.load.server import CannotRun

Table = list[str]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def spans(samples: Sequence[float], digits: int = 1) -> str:
    """p50 / p99, or nothing where nothing was sampled."""
    if not samples:
        return ""
    return f"{percentile(samples, 50):.{digits}f} / {percentile(samples, 99):.{digits}f}"


RUN_HEAD = (
    "requests", "requests/s", "mean tokens/s", "latency p50 / p99 ms", "TTFT p50 / p99 ms", "per token p50 / p99 ms",
    "between events p50 / p99 ms",
)  # fmt: skip


def run_cells(runs: Sequence[Run]) -> list[str]:
    """Rates are means over the runs' time, times are percentiles of all their samples."""
    seconds = sum(run.seconds for run in runs)
    requests = sum(len(run.samples) for run in runs)
    return [
        f"{requests:,}",
        f"{requests / seconds:,.1f}",
        f"{mean_tokens_per_s(runs):,.0f}",
        spans([ms for run in runs for ms in run.latencies_ms()]),
        spans([ms for run in runs for ms in run.ttfts_ms()]),
        spans([ms for run in runs for ms in run.per_token_ms()], 2),
        spans([ms for run in runs for ms in run.gaps_ms()]),
    ]


def cpu_ms_per_request(runs: Sequence[Run]) -> dict[str, float]:
    """By role, the dearest first; over all the runs."""
    requests = sum(len(run.samples) for run in runs)
    total: dict[str, float] = {}
    for run in runs:
        for role, seconds in run.cpu_s.items():
            total[role] = total.get(role, 0.0) + 1000 * seconds / requests
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def facts_list(facts: Facts) -> list[str]:
    return [f"- {name}: {value}" for name, value in facts.items()]


@dataclass(frozen=True, slots=True)
class Report:
    """One benchmark's name, its facts and its Markdown below them; `body` is what JSON has beside the facts.

    `pictures` are by the name of the file that they are drawn in.
    """

    name: str
    title: str
    facts: Facts
    lines: Sequence[str]
    body: Mapping[str, Any]
    pictures: Mapping[str, plots.Picture] = field(default_factory=dict)

    def markdown(self) -> str:
        return "\n".join([f"# {self.title}", "", *facts_list(self.facts), "", *self.lines, ""])

    def write(self, folder: Path) -> list[Path]:
        """NAME.json, NAME.md and the pictures in the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        as_json, as_text = folder / f"{self.name}.json", folder / f"{self.name}.md"
        as_json.write_bytes(orjson.dumps({"facts": dict(self.facts), **self.body}, default=str) + b"\n")
        as_text.write_text(self.markdown(), encoding="utf-8")
        return [as_json, as_text, *self.draw(folder)]

    def draw(self, folder: Path) -> list[Path]:
        """The pictures in the folder."""
        return [
            plots.draw(folder / f"{name}.png", picture.panels, title=picture.title)
            for name, picture in self.pictures.items()
        ]

    def publish(self, folder: Path) -> None:
        """Print the Markdown, write everything, and say where."""
        sys.stdout.write(self.markdown())
        print("written:", *self.write(folder))


@contextmanager
def no_report_on_failure() -> Iterator[None]:
    """Ends the program with the reason where a request failed, or what is measured did not start."""
    try:
        yield
    except (Failed, CannotRun) as error:
        raise SystemExit(f"nothing to report: {error}") from error
