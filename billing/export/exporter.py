"""The SQL of an export: a bounded page of rows at a time, each by itself, so that no snapshot and no lock is held.

A page follows the index of a workspace's events by time. Rows of other projects are left out after they were read: so a
page costs the same whatever is asked for.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import Column, Connection, Select, Table, and_, literal, null, or_, select

from billing.accounts import account_sql
from billing.export.rows import COLUMNS, Format, Place, Row, Selection, encoder_of
from billing.rollups.usage_sums import CHARGED, charged_month
from billing.store.database import Database
from billing.store.dates import now_s
from billing.store.schema import adjustments, usage_events, workspaces

_e, _a = usage_events.c, adjustments.c


def next_workspace(connection: Connection, after: str) -> str | None:
    """The id that follows."""
    ids = select(workspaces.c.id).where(workspaces.c.id > after).order_by(workspaces.c.id).limit(1)
    found: str | None = connection.execute(ids).scalar_one_or_none()
    return found


def page(connection: Connection, workspace_id: str, asked: Selection, limit: int) -> list[Row]:
    """The next rows of a workspace, of all its projects: `limit` of them, fewer at its end."""
    place = asked.after if asked.after is not None and asked.after.workspace_id == workspace_id else None
    events = _after(_events(connection), usage_events, _e.settled_at, _e.event_id, asked, place)
    made = _after(_adjustments(), adjustments, _a.created_at, _a.id, asked, place)
    rows: list[Row] = []
    for statement, owner in ((events, _e.workspace_id), (made, _a.workspace_id)):
        found = connection.execute(statement.where(owner == workspace_id).limit(limit))
        rows += [dict(zip(COLUMNS, row, strict=True)) for row in found]
    # Of both the first `limit` were read, so the first of both together are among them.
    return sorted(rows, key=lambda row: (row["at"], row["id"]))[:limit]


def _after(
    statement: Select[Any],
    table: Table,
    at: Column[datetime],
    key: Column[str],
    asked: Selection,
    place: Place | None,
) -> Select[Any]:
    statement = statement.select_from(table).where(at < asked.until).order_by(at, key)
    if asked.since is not None:
        statement = statement.where(at >= asked.since)
    if place is not None:
        # The first condition is for the index.
        later = or_(at > place.at, and_(at == place.at, key > place.id))
        statement = statement.where(at >= place.at, later)
    return statement


def _events(connection: Connection) -> Select[Any]:
    own = {
        "kind": literal("usage"),
        "id": _e.event_id,
        "at": _e.settled_at,
        "month": charged_month(connection),
        "amount_nano_usd": CHARGED,
        **dict.fromkeys(("event_id", "reason", "actor", "idempotency_key"), null()),
    }
    return _selecting(own, usage_events)


def _adjustments() -> Select[Any]:
    own = {"at": _a.created_at, "amount_nano_usd": _a.nano_usd, "created_at": _a.created_at}
    return _selecting(own, adjustments)


def _selecting(own: dict[str, Any], table: Table) -> Select[Any]:
    columns: Sequence[Any] = [
        own[name] if name in own else table.c[name] if name in table.c else null() for name in COLUMNS
    ]
    return select(*(column.label(name) for column, name in zip(columns, COLUMNS, strict=True)))


PAGE_ROWS = 2000
# What a server has settled is in the ledger by then, or in its spool: longer than a write may take.
SETTLING_S = 60


class Exporter:
    """Every method raises `LedgerUnavailable`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def selection(
        self,
        *,
        workspace: str | None = None,
        project: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Selection:
        """Rows from `since` to before `until`, but never of the last `SETTLING_S`: the selection's own `until` says so,
        and is where the next export begins. Raises `UnknownAccount`."""

        def read(connection: Connection) -> Selection:
            owner, part = None, None
            if workspace is not None:
                owner = account_sql.find_workspace(connection, workspace).id
            if project is not None:
                found = account_sql.find_project(connection, project)
                part, owner = found.id, owner or found.workspace_id
            now = datetime.fromtimestamp(connection.execute(select(now_s())).scalar_one(), UTC)
            settled = now - timedelta(seconds=SETTLING_S)
            return Selection(since, settled if until is None else min(until, settled), owner, part)

        return await self._database.read(read)

    def stream(self, format: Format, selection: Selection, *, limit: int | None = None) -> "Export":
        """The bytes of a file, to be iterated over once. `limit` is the most rows of it."""
        return Export(self._database, format, selection, limit)


class Export:
    """One file. `left` is what is to come after the bytes that were taken; None: nothing."""

    def __init__(self, database: Database, format: Format, selection: Selection, limit: int | None) -> None:
        self._database = database
        self._format: Format = format
        self._selection = selection
        self._most = limit
        self.left: Selection | None = selection
        self.rows = 0

    @property
    def until(self) -> datetime:
        """Rows of this moment and later are not in it."""
        return self._selection.until

    async def __aiter__(self) -> AsyncIterator[bytes]:
        # Encoding takes longer than reading, and would hold up all else in this process.
        encoder = await asyncio.to_thread(encoder_of, self._format)
        async for rows, left in self._pages():
            piece = await asyncio.to_thread(encoder.rows, rows)
            if piece:
                yield piece
            self.left = left
            self.rows += len(rows)
        if ending := await asyncio.to_thread(encoder.end):
            yield ending

    async def _pages(self) -> AsyncIterator[tuple[list[Row], Selection | None]]:
        """Rows, and the selection after them."""
        asked, rest = self._selection, self._most
        workspace_id = await self._first(asked)
        while workspace_id is not None:
            size = PAGE_ROWS
            read = partial(page, workspace_id=workspace_id, asked=asked, limit=size)
            rows = await self._database.read(read)
            is_last = len(rows) < size
            kept = [row for row in rows if asked.project_id in (None, row["project_id"])]
            if rest is not None and len(kept) >= rest:
                kept, rows, is_last = kept[:rest], kept[:rest], False
            if rows:
                last = rows[-1]
                asked = replace(asked, after=Place(workspace_id, last["at"], last["id"]))
            if is_last:
                workspace_id = await self._next(asked, workspace_id)
            yield kept, None if workspace_id is None else asked
            if rest is not None:
                rest -= len(kept)
                if rest <= 0:
                    return

    async def _first(self, asked: Selection) -> str | None:
        if asked.after is not None:
            return asked.after.workspace_id
        return asked.workspace_id or await self._next(asked, "")

    async def _next(self, asked: Selection, workspace_id: str) -> str | None:
        if asked.workspace_id is not None:
            return None
        return await self._database.read(partial(next_workspace, after=workspace_id))
