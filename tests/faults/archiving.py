"""`pith archive` killed at each of its steps and anywhere between them, and run again, beside a service under load."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyarrow.parquet import read_table
from sqlalchemy import Connection, func, select

from billing.accounts.accounts import Accounts
from billing.books.books import Books
from billing.books.usage_report import usage
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.price import cost
from billing.rollups.archived import archived, sealed_until
from billing.rollups.partitions import day_of, following, id_of_day
from billing.store.database import Database, open_database
from billing.store.log_tables import log_pending
from billing.store.migration import newest_revision
from billing.store.schema import usage_events
from billing.transparency.sequencer import Sequencer
from billing.usage import UsageFigures, now
from serve.config.settings import Settings
from serve.money.ledger_setup import log_signer, read_pepper
from tests.billing.archive.killed import Run, archiving

FIRST = datetime(2025, 1, 1, tzinfo=UTC).date()
EVENTS_IN_MONTH = 8
# Sealed, its file, read again, its manifest, its sums, archived, and two pieces of what is deleted.
KILLED_AFTER = (1, 1, 2, 3, 4, 5, 1, 1)
KILLS, SECONDS = 5, (0.02, 0.6)


def _count_waiting(connection: Connection, until: date) -> int:
    waits = log_pending.c.id < id_of_day(until)
    return connection.execute(select(func.count()).select_from(log_pending).where(waits)).scalar_one()


@asynccontextmanager
async def archiving_under_load(settings: Settings, rng: random.Random) -> AsyncIterator[Archivist]:
    """Two old months of a workspace that nobody else uses are archived inside the block; it waits for their end."""
    billing = settings.billing
    database, spool = open_database(billing.database_url), Spool(billing.spool_path)
    folder = billing.spool_path.parent / "archive"
    try:
        archivist = Archivist(database, spool, folder, rng)
        await archivist.use_old_months(settings)
        with archiving(billing.database_url, folder, billing.spool_path) as run:
            archivist.going_on = asyncio.create_task(archivist.archive(run))
            try:
                yield archivist
            finally:
                await archivist.going_on
        await archivist.judge()
    finally:
        await spool.close()
        await database.close()


@dataclass
class Archivist:
    """`troubles`, once the block has ended: what was lost, doubled or changed."""

    database: Database
    spool: Spool
    folder: Path
    rng: random.Random
    months: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    going_on: asyncio.Task[None] = field(init=False)
    _workspace: str = ""
    _events: list[dict[str, Any]] = field(default_factory=list)
    _usage: list[Any] = field(default_factory=list)

    async def use_old_months(self, settings: Settings) -> None:
        first = day_of(await self.database.read(sealed_until)) or FIRST
        accounts = Accounts(self.database, pepper=read_pepper(settings.state_dir))
        workspace = await accounts.create_workspace(f"old {uuid4().hex}", now=now())
        project = await accounts.create_project(workspace.id, "main", now=now())
        _, token = await accounts.keys.create(project.id, "key", now=now())
        caller = await accounts.authenticate(token, now=now())
        ledger = Ledger(self.database, self.spool)
        prices = await ledger.current_prices()
        price = prices.of("alpha")
        assert price is not None
        for month in (first, following(first)):
            self.months.append(f"{month:%Y-%m}")
            for number in range(EVENTS_IN_MONTH):
                moment = datetime.combine(month, time(12), UTC) + timedelta(days=3 * number)
                hold = await ledger.hold(
                    caller,
                    model_id="alpha",
                    pricing_version=prices.version,
                    amount_nano_usd=10**7,
                    request_id=f"old {moment}",
                    now=moment,
                )
                tokens = self.rng.randrange(1, 5000)
                due = cost(price, prompt_tokens=tokens, completion_tokens=7, minimum=True)
                figures = UsageFigures(tokens, 7, 0, stream=False)
                await ledger.settle(hold, figures=figures, cost=due, outcome="completed", now=moment)
        await ledger.close()
        # Beside the sequencers of the service.
        sequencer = Sequencer(self.database, log_signer(settings), revision=newest_revision(), clock=now)
        while (await self.database.read(partial(_count_waiting, until=following(following(first))))) > 0:
            await sequencer.once()
        self._workspace = workspace.id
        self._events, self._usage = await self._in_ledger(), await self._used()

    async def archive(self, run: Run) -> None:
        """The first month is killed after each step, the second anywhere."""
        for stop in KILLED_AFTER:
            await self._expect(await asyncio.to_thread(run, stop, 0), -signal.SIGKILL)
            await self._look()
        for _ in range(KILLS):
            await asyncio.to_thread(run, 0, self.rng.uniform(*SECONDS))
            await self._look()
        await self._expect(await asyncio.to_thread(run, 0, 0), 0)

    async def judge(self) -> None:
        await self._look()
        gone = [one.month for one in await self.database.read(archived) if one.is_dropped]
        if gone[-2:] != self.months:
            self.troubles.append(f"archived are {gone}, and not {self.months}")
        rows = [row for path in self.folder.glob("*.parquet") for row in read_table(path).to_pylist()]
        found = sorted((*rows, *await self._in_ledger()), key=lambda row: str(row["event_id"]))
        if found != self._events:
            self.troubles.append(f"{len(found)} events are in files and ledger, of {len(self._events)}")
        if not (books := await Books(self.database).reconcile(self.spool, full=True)).is_clean:
            self.troubles.append(f"the books do not add up: {books}")

    async def _expect(self, ended: int, due: int) -> None:
        if ended != due:
            self.troubles.append(f"pith archive ended with {ended}, and not with {due}")

    async def _look(self) -> None:
        if (used := await self._used()) != self._usage:
            self.troubles.append(f"usage was {self._usage}, and is {used}")

    async def _used(self) -> list[Any]:
        return await self.database.read(partial(usage, by=["day", "key"], workspace=self._workspace))

    async def _in_ledger(self) -> list[dict[str, Any]]:
        def read(connection: Connection) -> list[dict[str, Any]]:
            own = usage_events.c.workspace_id == self._workspace
            rows = connection.execute(usage_events.select().where(own).order_by(usage_events.c.event_id))
            return [dict(row._mapping) for row in rows]

        return await self.database.read(read)
