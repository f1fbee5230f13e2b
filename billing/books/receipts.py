"""Receipts of compressions as the ledger keeps them: codes, counts and offsets, and nothing that a customer wrote."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, or_, select

from billing.accounts import account_sql
from billing.store.charged import CHARGED
from billing.store.dates import within
from billing.store.schema import projects, usage_events, workspaces

_e = usage_events.c


@dataclass(frozen=True, slots=True)
class StoredReceipt:
    """One compression; `receipt` is JSON."""

    event_id: str
    request_id: str
    workspace: str
    project: str
    model_id: str
    created_at: datetime
    settled_at: datetime
    charged_nano_usd: int
    receipt: str


def receipts(
    connection: Connection,
    *,
    workspace: str | None = None,
    project: str | None = None,
    id: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int,
) -> list[StoredReceipt]:
    """The last `limit`, oldest first; `id` is an event's or a request's. Raises `UnknownAccount`."""
    statement = (
        select(
            _e.event_id,
            _e.request_id,
            workspaces.c.name.label("workspace"),
            projects.c.name.label("project"),
            _e.model_id,
            _e.created_at,
            _e.settled_at,
            CHARGED.label("charged_nano_usd"),
            _e.receipt,
        )
        .join(workspaces, workspaces.c.id == _e.workspace_id)
        .join(projects, projects.c.id == _e.project_id)
        .where(_e.receipt.is_not(None))
        .order_by(_e.settled_at.desc(), _e.event_id.desc())
        .limit(limit)
    )
    if workspace is not None:
        statement = statement.where(_e.workspace_id == account_sql.find_workspace(connection, workspace).id)
    if project is not None:
        statement = statement.where(_e.project_id == account_sql.find_project(connection, project).id)
    if id is not None:
        statement = statement.where(or_(_e.event_id == id, _e.request_id == id))
    rows = connection.execute(within(statement, _e.settled_at, since, until)).all()
    return [StoredReceipt(**row._mapping) for row in reversed(rows)]
