"""What was sent to whom, as an operator reads it, sends it again, and as it is deleted once it is old."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, delete, exists, select, update
from sqlalchemy.engine import Row

from billing.accounts import account_sql
from billing.store.database_clock import now_s
from billing.store.webhook_tables import webhook_deliveries, webhook_endpoints, webhook_events
from billing.webhooks import endpoint_sql
from billing.webhooks.delivery import Delivery, State
from billing.webhooks.errors import UnknownEvent
from billing.webhooks.outbox import TRIED_FOR_S

# Of events older than this, what no longer waits is deleted.
KEPT_S = 30 * 86_400.0
DELETED_AT_ONCE = 1000

_e, _d, _v = webhook_endpoints.c, webhook_deliveries.c, webhook_events.c


def listed(
    connection: Connection,
    *,
    endpoint: str | None = None,
    workspace: str | None = None,
    state: State | None = None,
    limit: int,
) -> list[Delivery]:
    """The latest, newest first: of one endpoint, or of one workspace's endpoints. Raises `UnknownAccount` and
    `UnknownEndpoint`."""
    columns = [*webhook_deliveries.c, _v.type, _v.workspace_id, _v.created_at]
    statement = select(*columns).join(webhook_events, _v.id == _d.event_id)
    if endpoint is not None:
        statement = statement.where(_d.endpoint_id == endpoint_sql.find(connection, endpoint).id)
    if workspace is not None:
        owner = account_sql.find_workspace(connection, workspace).id
        statement = statement.join(webhook_endpoints, _e.id == _d.endpoint_id).where(_e.workspace_id == owner)
    if state is not None:
        statement = statement.where(_d.state == state)
    newest = statement.order_by(_v.created_at.desc(), _v.id, _d.endpoint_id).limit(limit)
    return [_delivery(row) for row in connection.execute(newest)]


def redeliver(connection: Connection, event_id: str, endpoint: str | None = None) -> list[Delivery]:
    """Sends an event again, with the id that it had, to one endpoint or to all active ones that it was for.

    Raises `UnknownEvent` where there is none.
    """
    active = select(_e.id).where(_e.state == "active")
    if endpoint is not None:
        active = active.where(_e.id == endpoint_sql.find(connection, endpoint).id)
    again = update(webhook_deliveries).where(_d.event_id == event_id, _d.endpoint_id.in_(active))
    fresh = {"state": "waiting", "attempts": 0, "due_at": now_s(), "give_up_at": now_s() + TRIED_FOR_S}
    if not event_id.isprintable() or not connection.execute(again.values(**fresh)).rowcount:
        raise UnknownEvent(event_id)
    return [
        one
        for one in listed_of(connection, event_id)
        if one.state == "waiting" and endpoint in (None, one.endpoint_id)
    ]


def listed_of(connection: Connection, event_id: str) -> list[Delivery]:
    """Every delivery of one event."""
    columns = [*webhook_deliveries.c, _v.type, _v.workspace_id, _v.created_at]
    statement = select(*columns).join(webhook_events, _v.id == _d.event_id).where(_d.event_id == event_id)
    return [_delivery(row) for row in connection.execute(statement.order_by(_d.endpoint_id))]


def tidy(connection: Connection) -> int:
    """Deletes some events that are old and wait no more, and cancels what waits for an endpoint that is gone.

    How many events were deleted; there may be more.
    """
    inactive = select(_e.id).where(_e.state != "active")
    orphaned = update(webhook_deliveries).where(_d.state == "waiting", _d.endpoint_id.in_(inactive))
    connection.execute(orphaned.values(state="cancelled"))
    waits = exists().where(_d.event_id == _v.id, _d.state == "waiting").correlate(webhook_events)
    old = select(_v.id).where(_v.created_at < now_s() - KEPT_S, ~waits).order_by(_v.created_at)
    ids = list(connection.execute(old.limit(DELETED_AT_ONCE)).scalars())
    if ids:
        connection.execute(delete(webhook_deliveries).where(_d.event_id.in_(ids)))
        connection.execute(delete(webhook_events).where(_v.id.in_(ids)))
    return len(ids)


def _delivery(row: Row[Any]) -> Delivery:
    return Delivery(
        event_id=row.event_id,
        type=row.type,
        workspace_id=row.workspace_id,
        endpoint_id=row.endpoint_id,
        state=row.state,
        attempts=row.attempts,
        created_at=_moment(row.created_at),
        due_at=_moment(row.due_at),
        last_tried_at=None if row.last_tried_at is None else _moment(row.last_tried_at),
        last_status=row.last_status,
        last_error=row.last_error,
        delivered_at=None if row.delivered_at is None else _moment(row.delivered_at),
    )


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
