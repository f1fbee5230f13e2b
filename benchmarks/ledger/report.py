"""The figures as raw samples in JSON and as a Markdown table, with what they were measured on."""

from __future__ import annotations

import json
import platform
import sqlite3
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from benchmarks.ledger.load import Samples
from benchmarks.ledger.postgres_server import postgres_binaries
from benchmarks.load import machine
from benchmarks.load.sample import percentile

Facts = Mapping[str, str]


@dataclass(frozen=True)
class Scenario:
    """What one row of the table measures."""

    database: str
    clients: int
    workspaces: int


Runs = Mapping[Scenario, Sequence[Samples]]


def facts(folder: Path, runs: Runs, *, command: str) -> Facts:
    """The machine, the exact versions, and how much of the machine was somebody else's."""
    busy = [run.cpu_percent_before for samples in runs.values() for run in samples]
    packages = ("sqlalchemy", "asyncpg", "uvloop")
    return {
        "command": command,
        "machine": f"{machine.machine()}, the databases on {_filesystem(folder)}",
        "versions": ", ".join(
            (
                f"Python {platform.python_version()}",
                *machine.versions(packages),
                f"SQLite {sqlite3.sqlite_version}",
                _postgres_version(),
            )
        ),
        "CPU in use by others, half a second before each run": f"median {statistics.median(busy):.0f}%, "
        f"{min(busy):.0f}% to {max(busy):.0f}%",
    }


def markdown(runs: Runs, facts: Facts) -> str:
    """Times are of all samples; rates are medians of the runs."""
    lines = [f"- {name}: {value}" for name, value in facts.items()] + [
        "",
        "| database | clients | workspaces | hold p50 / p99 ms | settle p50 / p99 ms | added p50 / p99 ms "
        "| pairs/s | settlements/s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for scenario, samples in runs.items():
        hold = [ms for run in samples for ms in run.hold_ms]
        settle = [ms for run in samples for ms in run.settle_ms]
        both = [a + b for a, b in zip(hold, settle, strict=True)]
        cells = [
            scenario.database, str(scenario.clients), str(scenario.workspaces),
            _times(hold), _times(settle), _times(both),
            f"{statistics.median(run.pairs_per_s for run in samples):,.0f}",
            f"{statistics.median(run.settlements_per_s for run in samples):,.0f}",
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def write(folder: Path, runs: Runs, facts: Facts) -> list[Path]:
    """ledger.json and ledger.md in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    as_json, as_table = folder / "ledger.json", folder / "ledger.md"
    body = {
        "facts": dict(facts),
        "scenarios": [
            {**asdict(scenario), "runs": [asdict(run) for run in samples]}
            for scenario, samples in runs.items()
        ],
    }
    as_json.write_text(json.dumps(body) + "\n", encoding="utf-8")
    as_table.write_text(markdown(runs, facts), encoding="utf-8")
    return [as_json, as_table]


def _times(samples: Sequence[float]) -> str:
    return f"{percentile(samples, 50):.2f} / {percentile(samples, 99):.2f}"


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
