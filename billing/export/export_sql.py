"""The SQL of an export: a bounded page of rows at a time, each by itself, so that no snapshot and no lock is held.

A page follows the index of a workspace's events by time. Rows of other projects are left out after they were read: so a
page costs the same whatever is asked for.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Column, Connection, Select, Table, and_, literal, null, or_, select

from billing.export.columns import COLUMNS, Row
from billing.export.selection import Place, Selection
from billing.store.adjustment_tables import adjustments
from billing.store.charged import CHARGED, charged_month
from billing.store.schema import usage_events, workspaces

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
