"""Reads the ledger back: its events, and whether the balances of the workspaces are what the rows add up to."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, func, select

from billing.schema import holds, usage_events, workspaces
from billing.usage import UsageEvent


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure of a workspace's row that its events, or its holds, do not add up to."""

    workspace_id: str
    figure: str
    stored_nano_usd: int
    rebuilt_nano_usd: int


def recent_events(
    connection: Connection, *, workspace_id: str | None, project_id: str | None, limit: int
) -> list[UsageEvent]:
    """The last events to be settled, newest first; None is any workspace, any project."""
    statement = select(usage_events).order_by(
        usage_events.c.settled_at.desc(), usage_events.c.event_id.desc()
    )
    if workspace_id is not None:
        statement = statement.where(usage_events.c.workspace_id == workspace_id)
    if project_id is not None:
        statement = statement.where(usage_events.c.project_id == project_id)
    return [UsageEvent(**row._mapping) for row in connection.execute(statement.limit(limit))]


def differences(connection: Connection) -> list[Difference]:
    """Empty when every balance can be rebuilt from the append-only events and the open holds."""
    of_row = usage_events.c.workspace_id == workspaces.c.id
    posted = _sum(usage_events.c.cost_nano_usd, of_row)
    held = _sum(holds.c.amount_nano_usd, holds.c.workspace_id == workspaces.c.id)
    # One statement, and so one snapshot: a settlement between two would look like a difference.
    rows = connection.execute(select(workspaces, posted.label("events"), held.label("open_holds"))).all()
    found = []
    for row in rows:
        for figure, stored, rebuilt in (
            ("posted", row.posted_nano_usd, int(row.events)),
            ("held", row.held_nano_usd, int(row.open_holds)),
        ):
            if stored != rebuilt:
                found.append(Difference(row.id, figure, stored, rebuilt))
    return found


def _sum(column: ColumnElement[int], where: ColumnElement[bool]) -> ColumnElement[int]:
    return select(func.coalesce(func.sum(column), 0)).where(where).scalar_subquery()
