"""Readings of what a server on SQLite keeps between requests: bytes on disk, rows of the ledger, its gauges."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

# What is to come back to where it was, and how much of it may be there at a time without being growth.
GAUGES = {
    "tasks": "pith_event_loop_tasks",
    "requests under way": "pith_http_requests_in_flight",
    "usage in the spool": "pith_spool_waiting_events",
    "usage the ledger refused": "pith_spool_refused_events",
    "waiting for the log": "pith_log_pending",
    "webhooks waiting": "pith_webhook_deliveries_waiting",
}
ROWS = {"holds": "holds", "usage events": "usage_events", "originals": "originals", "files": "batch_files"}
LEDGER, SPOOL, FILES = "disk: ledger", "disk: spool", "disk: files"
OTHERS = "disk: all else"
PLACES = (("pith.db", LEDGER), ("spool.db", SPOOL), ("files/", FILES))
MIB = 2**20
METRICS_S = 30.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where to look: the folder of its state, and the address of its metrics."""

    state: Path
    metrics_url: str


def kept(place: Place) -> dict[str, float]:
    """Counts, and MiB of disk, by name."""
    return {**_gauges(place.metrics_url), **_rows(place.state / "pith.db"), **disk_mib(place.state)}


def _gauges(url: str) -> dict[str, float]:
    with urlopen(url, timeout=METRICS_S) as reply:
        text = reply.read().decode()
    return {name: total(text, family) for name, family in GAUGES.items()}


def total(text: str, family: str) -> float:
    """Of all series of a family in Prometheus's text."""
    lines = re.findall(rf"^{family}(?:\{{[^\n]*\}})? (\S+)$", text, re.MULTILINE)
    return sum(float(value) for value in lines)


def _rows(ledger: Path) -> dict[str, float]:
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True, timeout=60)) as database:
        return {
            name: float(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
            for name, table in ROWS.items()
        }


def disk_mib(folder: Path) -> dict[str, float]:
    """Of what is allocated below a folder, by place."""
    found: Counter[str] = Counter({name: 0 for name in (LEDGER, SPOOL, FILES, OTHERS)})
    for path in folder.rglob("*"):
        try:
            blocks = path.lstat().st_blocks
        except FileNotFoundError:
            continue
        relative = path.relative_to(folder).as_posix()
        name = next((name for start, name in PLACES if relative.startswith(start)), OTHERS)
        found[name] += 512 * blocks
    return {name: size / MIB for name, size in found.items()}
