"""Times what is read of a ledger of years, and money that moves in it beside money that moves in an empty one."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.ledger.load import BadRun, Bench
from benchmarks.years.generate import Years
from billing.archive.archiver import Archiver
from billing.archive.month_files import manifest_of
from billing.books.books import Books
from billing.books.invariants import unequal_sums
from billing.books.usage_report import usage
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.rollups.archived import archived, sealed_until
from billing.rollups.archived import stored_manifest as archived_manifest
from billing.rollups.partitions import day_of
from billing.store.database import Database, open_database
from billing.store.migration import newest_revision, upgrade
from billing.transparency.log_sql import status
from billing.transparency.notes import signer
from billing.transparency.sequencer import Sequencer

READS = 5
READ_TIMEOUT_S = 7200.0
CLIENTS, WORKSPACES = 16, 16


@dataclass
class Figures:
    """Seconds of each reading, by its name; pairs a second of both ledgers, in turns."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    pairs_of_years: list[float] = field(default_factory=list)
    pairs_of_none: list[float] = field(default_factory=list)
    events_read: dict[str, int] = field(default_factory=dict)
    # Of the archived month.
    archived_events: int = 0
    archived_bytes: int = 0

    @property
    def ratio(self) -> float:
        """Of the medians."""
        return statistics.median(self.pairs_of_years) / statistics.median(self.pairs_of_none)


async def read_books(database: Database, years: Years, figures: Figures, spool: Spool) -> None:
    """Usage and statements, then proofs: the first, an ordinary one, and a full one. Raises `RuntimeError` where the
    books do not add up."""
    books, until = Books(database), years.until
    workspace, middle = "workspace-7", until - timedelta(days=400, hours=5)

    def read_usage(**which: Any) -> Awaitable[Any]:
        return database.read(partial(usage, **which))

    reads: dict[str, Callable[[], Awaitable[Any]]] = {
        "usage, all of it, by workspace": partial(read_usage, by=["workspace"]),
        "usage, all of it, by model and route": partial(read_usage, by=["model", "route"]),
        "usage, all of it, by month": partial(read_usage, by=["month"]),
        "usage, 400 days and a part of one, by key": partial(read_usage, by=["key"], since=middle),
        "usage of a workspace, all of it, by day": partial(read_usage, by=["day"], workspace=workspace),
        "statement of a workspace": lambda: books.statement(workspace, f"{until - timedelta(days=40):%Y-%m}"),
        "/v1/usage: 30 days of a key, by day": partial(
            read_usage, by=["day"], key_id="key28", since=until - timedelta(days=30)
        ),
        "/v1/usage: a year of a project, by model and route": partial(
            read_usage, by=["model", "route"], project="prj_14", since=until - timedelta(days=366)
        ),
    }
    for name, read in reads.items():
        for _ in range(READS):
            await timed(figures, name, read)
    for name, full in (("first", False), ("ordinary", False), ("ordinary", False), ("--full", True)):
        found = await timed(figures, f"reconcile, {name}", partial(books.reconcile, spool, full=full))
        figures.events_read[name] = found.events_read
        if not found.is_clean or found.totals.events != years.events:
            raise RuntimeError(f"the books do not add up: {found}")


async def put_into_log(database: Database, figures: Figures) -> None:
    """Every event, as after an upgrade."""
    secret = signer(b"a secret for the benchmark only", "bench")
    sequencer = Sequencer(database, secret, revision=newest_revision(), clock=lambda: datetime.now(UTC))

    async def put() -> None:
        while (await database.read(status)).pending:
            await sequencer.once()

    await timed(figures, "transparency log", put)


async def archive_month(
    database: Database, years: Years, figures: Figures, folder: Path, spool: Spool
) -> None:
    """The oldest month there is, from its proof to its last deleted event. Raises `RuntimeError` where the books do not
    add up."""
    first = day_of(await database.read(sealed_until)) or years.since.date()
    now = datetime.now(UTC)
    keep = now.year * 12 + now.month - (first.year * 12 + first.month) - 1
    archiver = Archiver(database, spool, folder, actor="benchmark", tell=_tell)
    await timed(figures, "archive, a month", partial(archiver.archive, keep))
    month = (await database.read(archived))[-1]
    figures.archived_events = month.events
    files = manifest_of(await database.read(partial(archived_manifest, month=month.month))).files
    figures.archived_bytes = sum(file.bytes for file in files)
    await timed(figures, "months against days", lambda: database.read(unequal_sums))
    found = await Books(database).reconcile(spool)
    if not found.is_clean or found.totals.events != years.events:
        raise RuntimeError(f"the books do not add up: {found}")


def _tell(step: str) -> None:
    if not step.endswith("events deleted"):
        print(f"{'':12}{step}", file=sys.stderr, flush=True)


async def timed(figures: Figures, name: str, read: Callable[[], Awaitable[Any]]) -> Any:
    began = time.perf_counter()
    found = await read()
    taken = time.perf_counter() - began
    figures.seconds.setdefault(name, []).append(taken)
    print(f"{taken:10.3f} s  {name}", file=sys.stderr, flush=True)
    return found


class YearsBench(Bench):
    """Counts events by their sums: counting them one by one takes minutes."""

    async def _count_events(self) -> int:
        counting = "SELECT coalesce(sum(requests), 0) FROM usage_months"
        return int(await self._database.read(lambda c: c.exec_driver_sql(counting).scalar_one()))

    async def verify(self, expected: int, found: int) -> None:
        """The whole books are proven when all has been measured."""
        if expected != found:
            raise BadRun(f"{expected} settlements were made and {found} events are in the ledger")


async def move_money(
    url: str, empty_url: str, folder: Path, figures: Figures, *, rounds: int, seconds: float
) -> None:
    """Pairs of holds and settlements in both ledgers, in turns. Raises `RuntimeError` where the books do not add up."""
    await upgrade(empty_url)
    for number in range(rounds):
        for where, found in ((url, figures.pairs_of_years), (empty_url, figures.pairs_of_none)):
            database = open_database(where)
            spool = Spool(folder / f"spool-{number}-{len(found)}.db")
            ledger = Ledger(database, spool)
            try:
                bench = YearsBench(database, ledger)
                await bench.prepare()
                samples = await bench.run(clients=CLIENTS, workspaces=WORKSPACES, seconds=seconds)
                found.append(samples.pairs_per_s)
                print(f"{samples.pairs_per_s:10.0f} pairs/s  {where}", file=sys.stderr, flush=True)
            finally:
                await ledger.close()
                await spool.close()
                await database.close()
    await prove(url, folder)


async def prove(url: str, folder: Path) -> None:
    database, spool = open_database(url, timeout_s=READ_TIMEOUT_S), Spool(folder / "last.db")
    try:
        found = await Books(database).reconcile(spool)
    finally:
        await spool.close()
        await database.close()
    # What is charged here is not what the tokens cost, so prices are no part of it.
    if found.differences or found.wrong_sums or found.changed:
        raise RuntimeError(f"the books do not add up: {found.differences} {found.wrong_sums} {found.changed}")
