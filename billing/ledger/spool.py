"""A local file of usage events that the ledger could not take; `billing.ledger.recording` takes them back."""

import asyncio
import json
import logging
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Delete,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    Update,
    case,
    delete,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateTable

from billing.accounts import audit_log
from billing.accounts.audit_log import AuditEntry
from billing.errors import LedgerUnavailable, SpoolFull, SpoolUnavailable, UnknownSpooledEvent
from billing.store.database import Database
from billing.store.sqlite import SqliteDatabase
from billing.usage import UsageEvent, event_to_json

_metadata = MetaData()
spooled_events = Table(
    "spooled_events",
    _metadata,
    Column("position", Integer, primary_key=True),
    Column("event_id", String(32), nullable=False, unique=True),
    Column("event", Text, nullable=False),
    # Set when the ledger refused the event for good. Such a row waits for an operator.
    Column("refusal", Text),
    sqlite_autoincrement=True,
)
_checks = Table(
    "checks",
    _metadata,
    Column("id", Integer, primary_key=True),
    Column("checked_at", Float, nullable=False),
)
# As text: SQLAlchemy would look each up in the catalog first, at ten times what an event costs.
_MAKE = tuple(
    str(CreateTable(table, if_not_exists=True).compile(dialect=sqlite.dialect()))
    for table in (spooled_events, _checks)
)
_IS_MADE = f"SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '{spooled_events.name}'"
_COUNT = select(func.count()).select_from(spooled_events)
# Those that the ledger refused, and those that it did not.
OLDEST = {
    True: select(spooled_events)
    .where(spooled_events.c.refusal.is_not(None))
    .order_by(spooled_events.c.position),
    False: select(spooled_events)
    .where(spooled_events.c.refusal.is_(None))
    .order_by(spooled_events.c.position),
}
# The other event that an event names, where it does; what was set aside need not be JSON.
NAMED: ColumnElement[str | None] = case(
    (func.json_valid(spooled_events.c.event) == 1, func.json_extract(spooled_events.c.event, "$.paired_with"))
)


def is_made(connection: Connection) -> bool:
    """False in a file that was opened on a full disk: it stays empty until an event can be written."""
    return connection.exec_driver_sql(_IS_MADE).first() is not None


def make(connection: Connection) -> None:
    for statement in _MAKE:
        connection.exec_driver_sql(statement)


def append(connection: Connection, event: UsageEvent) -> int:
    """Makes a row and returns 1, or 0 for an event that is here already."""
    make(connection)
    row = {"event_id": event.event_id, "event": event_to_json(event)}
    return connection.execute(sqlite.insert(spooled_events).values(row).on_conflict_do_nothing()).rowcount


def probe(connection: Connection) -> int:
    """Writes a row, since only a write tells whether writes succeed; returns how many events there are."""
    make(connection)
    checked = {"id": 1, "checked_at": time.time()}
    statement = sqlite.insert(_checks).values(checked)
    connection.execute(statement.on_conflict_do_update(index_elements=["id"], set_=checked))
    return connection.execute(_COUNT).scalar_one()


log = logging.getLogger(__name__)

# How long a successful write vouches for the next one, unless the disk has less than this left.
TRUST_S = 2.0
MIN_FREE_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class SpooledEvent:
    """One row of the spool as it was written; `refusal` is None while it waits for the ledger."""

    position: int
    event_id: str
    event: str
    refusal: str | None


class Spool:
    """A bounded queue of events in a SQLite file of its own, each synced to disk before `append` returns.

    The bound applies before work begins: `require_room` refuses work, and the usage of admitted work is always
    taken. Every method raises `LedgerUnavailable` when the file cannot be read or written.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_rows: int = 100_000,
        timeout_s: float = 5.0,
        database: Database | None = None,
    ) -> None:
        """`database` is what keeps the events: SQLite in the file at `path`, unless another is given."""
        self._path = path
        self._max_rows = max_rows
        self._database = database or SqliteDatabase(str(path), timeout_s=timeout_s)
        self._rows = 0
        self._trusted_until = 0.0
        self._checking: asyncio.Task[None] | None = None

    async def require_writable(self) -> None:
        """Raises `SpoolUnavailable` if the disk refuses writes or is about to. A good answer is reused for a while."""
        if asyncio.get_running_loop().time() < self._trusted_until:
            return
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check())
        # Shielded: the first caller's disconnect must not fail the others who wait for the same answer.
        await asyncio.shield(self._checking)

    async def require_room(self) -> None:
        """Raises `SpoolFull`, or what `require_writable` raises."""
        await self.require_writable()
        if self._rows < self._max_rows:
            return
        # Counted again: the replayer or an operator may have removed rows since.
        self._trusted_until = 0.0
        await self.require_writable()
        if self._rows >= self._max_rows:
            raise SpoolFull(self._max_rows)

    async def append(self, *events: UsageEvent) -> None:
        """Stores the events, all or none, but for those that are here already."""
        try:
            self._rows += await self._database.write(lambda c: sum(append(c, event) for event in events))
        except LedgerUnavailable:
            self._trusted_until = 0.0
            raise

    async def waiting_ids(self) -> frozenset[str]:
        """The ids of every event that the ledger has not refused: their holds cover money that was spent."""
        if not self._exists():
            return frozenset()
        statement = select(spooled_events.c.event_id).where(spooled_events.c.refusal.is_(None))
        rows = await self._database.read(lambda c: c.execute(statement).scalars().all() if is_made(c) else [])
        return frozenset(rows)

    async def waiting(self, limit: int = 100) -> list[SpooledEvent]:
        """The oldest events that the ledger has not refused."""
        return await self._select(refused=False, limit=limit)

    async def refused(self, limit: int = 100) -> list[SpooledEvent]:
        """The events that were set aside."""
        return await self._select(refused=True, limit=limit)

    async def count_waiting(self) -> int:
        return await self._count(spooled_events.c.refusal.is_(None))

    async def count_refused(self) -> int:
        return await self._count(spooled_events.c.refusal.is_not(None))

    async def costs_by_workspace(self) -> dict[str, int]:
        """Nano-dollars that wait for the ledger, without what it refused, which is charged to no workspace."""
        if not self._exists():
            return {}
        workspace = func.json_extract(spooled_events.c.event, "$.workspace_id")
        cost = func.sum(func.json_extract(spooled_events.c.event, "$.cost_nano_usd"))
        statement = select(workspace, cost).where(spooled_events.c.refusal.is_(None)).group_by(workspace)
        rows = await self._database.read(lambda c: c.execute(statement).all() if is_made(c) else [])
        return {str(row[0]): int(row[1] or 0) for row in rows}

    async def find_refused(self, event_id: str) -> list[SpooledEvent]:
        """An event that was set aside, and the one that it names where that was too. Raises `UnknownSpooledEvent`."""
        return await self._change_refused(None, event_id)

    async def retry(self, event_id: str) -> None:
        """Lets an event that was set aside wait for the ledger again, with the one that it names. Raises
        `UnknownSpooledEvent`."""
        await self._change_refused(update(spooled_events).values(refusal=None), event_id)

    async def drop(self, event_id: str) -> list[SpooledEvent]:
        """Takes out an event that was set aside, for good, with the one that it names; returns them. Raises
        `UnknownSpooledEvent`."""
        return await self._change_refused(delete(spooled_events), event_id)

    async def remove(self, event_id: str) -> None:
        statement = delete(spooled_events).where(spooled_events.c.event_id == event_id)
        await self._database.write(lambda c: c.execute(statement))

    async def set_aside(self, event_ids: Sequence[str], refusal: str) -> None:
        """All of them, or none."""
        statement = (
            update(spooled_events).where(spooled_events.c.event_id.in_(event_ids)).values(refusal=refusal)
        )
        await self._database.write(lambda c: c.execute(statement))

    async def close(self) -> None:
        await self._database.close()

    def _exists(self) -> bool:
        """Most servers never spool an event, and then there is no file."""
        try:
            return self._path.exists()
        except OSError as error:
            raise LedgerUnavailable(f"the usage spool cannot be read: {error.strerror or error}") from error

    async def _count(self, wanted: ColumnElement[bool]) -> int:
        if not self._exists():
            return 0
        counting = select(func.count()).select_from(spooled_events).where(wanted)
        return await self._database.read(lambda c: c.execute(counting).scalar_one() if is_made(c) else 0)

    async def _check(self) -> None:
        try:
            self._rows = await self._database.write(probe)
            free = shutil.disk_usage(self._path.parent).free
        except (LedgerUnavailable, OSError) as error:
            # SQLite's message names a path: it is for the log, not for the caller.
            log.error("the usage spool %s cannot be written: %s", self._path, error)
            raise SpoolUnavailable("the usage spool cannot be written") from error
        if free < MIN_FREE_BYTES:
            raise SpoolUnavailable("the usage spool cannot be written: its disk is full")
        self._trusted_until = asyncio.get_running_loop().time() + TRUST_S

    async def _change_refused(self, change: Update | Delete | None, event_id: str) -> list[SpooledEvent]:
        wanted = (
            spooled_events.c.refusal.is_not(None),
            or_(spooled_events.c.event_id == event_id, NAMED.in_([event_id])),
        )

        def work(connection: Connection) -> list[SpooledEvent]:
            make(connection)
            rows = connection.execute(select(spooled_events).where(*wanted)).all()
            if change is not None and any(row.event_id == event_id for row in rows):
                connection.execute(change.where(*wanted))
            found = [SpooledEvent(row.position, row.event_id, row.event, row.refusal) for row in rows]
            return sorted(found, key=lambda one: one.event_id != event_id)

        # A file that is not there is not made for this.
        found = await self._database.write(work) if self._path.exists() else []
        if not found or found[0].event_id != event_id:
            raise UnknownSpooledEvent(f"no event {event_id!r} is set aside in the spool {self._path}")
        return found

    async def _select(self, *, refused: bool, limit: int) -> list[SpooledEvent]:
        if not self._exists():
            return []
        statement = OLDEST[refused].limit(limit)
        rows = await self._database.read(lambda c: c.execute(statement).all() if is_made(c) else [])
        return [SpooledEvent(row.position, row.event_id, row.event, row.refusal) for row in rows]


MOST_NOTED_CHARS = 4000


async def drop_event(
    spool: Spool, ledger: Database, event_id: str, *, actor: str, now: datetime
) -> list[SpooledEvent]:
    """Nobody is charged for it, nor for the event that it names. Raises `UnknownSpooledEvent`, and `LedgerUnavailable`
    where the entry cannot be written: then both stay. The entry comes first, so that none is dropped without one."""
    found = await spool.find_refused(event_id)

    def note(connection: Connection) -> None:
        for one in found:
            fields = _fields(one)
            details = {"refusal": one.refusal, "event": fields}
            workspace_id = _short(fields.get("workspace_id"))
            entry = AuditEntry(now, actor, "spool.drop", workspace_id, one.event_id[:64], details)
            audit_log.record(connection, entry)

    await ledger.write(note)
    return await spool.drop(event_id)


def _fields(spooled: SpooledEvent) -> dict[str, Any]:
    """The event without its receipt; its text if it is not JSON."""
    try:
        fields = json.loads(spooled.event)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        return {"text": spooled.event[:MOST_NOTED_CHARS]}
    fields.pop("receipt", None)
    return fields


def _short(workspace_id: object) -> str | None:
    return workspace_id[:32] if isinstance(workspace_id, str) else None
