"""A local file of usage events that the ledger could not take; `billing.ledger.replay` takes them back."""

import asyncio
import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import ColumnElement, Connection, Delete, Update, delete, func, or_, select, update

from billing.errors import (
    LedgerUnavailable,
    SpoolFull,
    SpoolUnavailable,
    UnknownSpooledEvent,
)
from billing.spool.spool_table import NAMED, OLDEST, append, is_made, make, probe, spooled_events
from billing.store.database import Database
from billing.store.sqlite import SqliteDatabase
from billing.usage import UsageEvent

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
