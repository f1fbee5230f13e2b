"""A local file of usage events that the ledger could not take, and the way back: exactly once, in order."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sqlalchemy import (
    Column,
    Connection,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    delete,
    func,
    inspect,
    literal,
    select,
    update,
)
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from billing import posting
from billing.database import Database
from billing.errors import LedgerUnavailable, RowRefused, SpoolFull
from billing.sqlite import SqliteDatabase
from billing.usage import UsageEvent, event_from_json, event_to_json

log = logging.getLogger(__name__)

_metadata = MetaData()
_spooled = Table(
    "spooled_events",
    _metadata,
    Column("position", Integer, primary_key=True),
    Column("event_id", String(32), nullable=False, unique=True),
    Column("event", Text, nullable=False),
    # Set when the ledger refused the event for good. Such a row waits for an operator.
    Column("refusal", Text),
    sqlite_autoincrement=True,
)


@dataclass(frozen=True, slots=True)
class SpooledEvent:
    """One row of the spool as it was written; `refusal` is None while it waits for the ledger."""

    position: int
    event_id: str
    event: str
    refusal: str | None


@dataclass(frozen=True, slots=True)
class Replayed:
    """What one replay did with the events: posted now, known to the ledger before, set aside, or waiting."""

    posted: int
    known: int
    refused: int
    waiting: int


class Spool:
    """A bounded queue of events in a SQLite file of its own, each synced to disk before `append` returns.

    Its methods raise `LedgerUnavailable` when the file cannot be written, and `SpoolFull`.
    """

    def __init__(self, path: Path, *, max_rows: int = 100_000, timeout_s: float = 5.0) -> None:
        self._path = path
        self._max_rows = max_rows
        self._database: Database = SqliteDatabase(str(path), timeout_s=timeout_s)

    async def append(self, event: UsageEvent) -> None:
        """Keeps the event; one that is here already is not kept twice."""
        await self._database.write(lambda c: _append(c, event, self._max_rows))

    async def waiting(self, limit: int = 100) -> list[SpooledEvent]:
        """The oldest events that the ledger has not refused."""
        return await self._select(refused=False, limit=limit)

    async def refused(self, limit: int = 100) -> list[SpooledEvent]:
        """The events set aside."""
        return await self._select(refused=True, limit=limit)

    async def count_waiting(self) -> int:
        if not self._path.exists():
            return 0
        counting = select(func.count()).select_from(_spooled).where(_spooled.c.refusal.is_(None))
        return await self._database.read(lambda c: c.execute(counting).scalar_one() if _is_made(c) else 0)

    async def remove(self, event_id: str) -> None:
        statement = delete(_spooled).where(_spooled.c.event_id == event_id)
        await self._database.write(lambda c: c.execute(statement))

    async def set_aside(self, event_id: str, refusal: str) -> None:
        statement = update(_spooled).where(_spooled.c.event_id == event_id).values(refusal=refusal)
        await self._database.write(lambda c: c.execute(statement))

    async def close(self) -> None:
        await self._database.close()

    async def _select(self, *, refused: bool, limit: int) -> list[SpooledEvent]:
        # Most servers never spool an event, and then there is no file.
        if not self._path.exists():
            return []
        wanted = _spooled.c.refusal.is_not(None) if refused else _spooled.c.refusal.is_(None)
        statement = select(_spooled).where(wanted).order_by(_spooled.c.position).limit(limit)
        rows = await self._database.read(lambda c: c.execute(statement).all() if _is_made(c) else [])
        return [SpooledEvent(row.position, row.event_id, row.event, row.refusal) for row in rows]


async def replay(spool: Spool, ledger: Database, *, batch: int = 100) -> Replayed:
    """Moves what waits into the ledger, oldest first, and stops where the ledger is away.

    A crash between the ledger's commit and the spool's removal is harmless: the event id is known next time.
    """
    posted = known = refused = 0
    while events := await spool.waiting(batch):
        for spooled in events:
            try:
                event = event_from_json(spooled.event)
                is_new = await ledger.write(partial(posting.post, event=event))
            except LedgerUnavailable as error:
                log.warning("replay stops: %s", error)
                return Replayed(posted, known, refused, await spool.count_waiting())
            except (RowRefused, ValueError) as error:
                log.error("usage event %s is set aside: %s", spooled.event_id, error)
                await spool.set_aside(spooled.event_id, str(error))
                refused += 1
                continue
            posted, known = posted + is_new, known + (not is_new)
            await spool.remove(spooled.event_id)
    return Replayed(posted, known, refused, 0)


def _is_made(connection: Connection) -> bool:
    """False in a file that was opened on a full disk: it stays empty until an event can be written."""
    return inspect(connection).has_table(_spooled.name)


def _append(connection: Connection, event: UsageEvent, max_rows: int) -> None:
    _metadata.create_all(connection)
    has_room = select(func.count()).select_from(_spooled).scalar_subquery() < max_rows
    row = select(literal(event.event_id), literal(event_to_json(event))).where(has_room)
    statement = sqlite_insert(_spooled).from_select(["event_id", "event"], row).on_conflict_do_nothing()
    if connection.execute(statement).rowcount == 1:
        return
    known = select(_spooled.c.event_id).where(_spooled.c.event_id == event.event_id)
    if connection.execute(known).one_or_none() is None:
        raise SpoolFull(max_rows)
