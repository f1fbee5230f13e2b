"""The figures with what they were measured on: raw samples in JSON, a Markdown table and a plot."""

from __future__ import annotations

import sqlite3
import statistics
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from benchmarks.ledger.load import Samples
from benchmarks.ledger.postgres_server import postgres_binaries
from benchmarks.load import machine, plots
from benchmarks.load.loop import Closed
from benchmarks.load.machine import Facts
from benchmarks.load.report import Report, spans, table

PACKAGES = ("pith", "sqlalchemy", "asyncpg", "uvloop")
HEAD = (
    "database", "clients", "workspaces", "hold p50 / p99 ms", "settle p50 / p99 ms", "added p50 / p99 ms", "pairs/s",
    "settlements/s",
)  # fmt: skip


@dataclass(frozen=True)
class Scenario:
    """What one row of the table measures."""

    database: str
    clients: int
    workspaces: int

    def __str__(self) -> str:
        return f"{self.database}, {Closed(self.clients)}, {self.owners}"

    @property
    def owners(self) -> str:
        return f"{self.workspaces} workspace{'s' if self.workspaces > 1 else ''}"


Runs = Mapping[Scenario, Sequence[Samples]]


def facts() -> Facts:
    """The machine and the exact versions, before the first run."""
    found = machine.facts("benchmarks.ledger", packages=PACKAGES)
    databases = f"SQLite {sqlite3.sqlite_version}, {_postgres_version()}"
    return {**found, "versions": f"{found['versions']}, {databases}"}


def report(facts: Facts, folder: Path, runs: Runs) -> Report:
    """`folder` is where the databases were. Times are of all samples; rates are medians of the runs."""
    busy = [run.cpu_percent_before for samples in runs.values() for run in samples]
    more = {
        "databases on": _filesystem(folder),
        "CPU in use by others, half a second before each run": f"median {statistics.median(busy):.0f}%, "
        f"{min(busy):.0f}% to {max(busy):.0f}%",
    }
    body = {
        "scenarios": [
            {**asdict(scenario), "runs": [asdict(run) for run in samples]}
            for scenario, samples in runs.items()
        ],
    }
    lines = table(HEAD, [row(scenario, samples) for scenario, samples in runs.items()])
    return Report(
        "ledger", "Holds and settlements", {**facts, **more}, lines, body, {"ledger": picture(runs)}
    )


def row(scenario: Scenario, samples: Sequence[Samples]) -> list[str]:
    return [
        scenario.database,
        str(scenario.clients),
        str(scenario.workspaces),
        spans([ms for run in samples for ms in run.hold_ms], 2),
        spans([ms for run in samples for ms in run.settle_ms], 2),
        spans([ms for run in samples for ms in run.added_ms], 2),
        f"{statistics.median(run.pairs_per_s for run in samples):,.0f}",
        f"{statistics.median(run.settlements_per_s for run in samples):,.0f}",
    ]


def picture(runs: Runs) -> plots.Picture:
    rates: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for scenario, samples in runs.items():
        rate = statistics.median(run.pairs_per_s for run in samples)
        rates[f"{scenario.database}, {scenario.owners}"].append((scenario.clients, rate))
    times = {"hold": "hold_ms", "settle": "settle_ms", "added": "added_ms"}
    panels = [
        plots.throughput("pairs/s", rates),
        *(
            plots.distribution(
                title,
                "ms",
                {
                    str(scenario): [ms for run in samples for ms in getattr(run, of)]
                    for scenario, samples in runs.items()
                },
            )
            for title, of in times.items()
        ),
    ]
    name, most = max(
        ((name, rate) for name, points in rates.items() for _, rate in points), key=lambda found: found[1]
    )
    return plots.Picture(f"Up to {most:,.0f} holds with their settlements a second ({name})", panels)


def _filesystem(folder: Path) -> str:
    """Of the disk that holds the folder: a settlement waits for it."""
    mounts = [
        part for part in psutil.disk_partitions(all=True) if folder.resolve().is_relative_to(part.mountpoint)
    ]
    return max(mounts, key=lambda part: len(part.mountpoint)).fstype if mounts else "an unknown disk"


def _postgres_version() -> str:
    binaries = postgres_binaries()
    if binaries is None:
        return "no PostgreSQL here"
    said = subprocess.run([binaries / "postgres", "--version"], check=True, capture_output=True, text=True)
    return said.stdout.strip().replace("postgres (PostgreSQL)", "PostgreSQL")
