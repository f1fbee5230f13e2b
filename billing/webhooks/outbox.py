"""The outbox: an event is written with what it tells of, in one transaction, and delivered later.

To deliver, an endpoint is claimed, what is due for it is sent one after another, and each end recorded. A claim is a
lease by the database's clock. Who sends to an endpoint is alone with it, so a receiver that is slow delays nobody else,
and two servers do not send the same. A server that dies leaves a lease that ends.
"""

import json
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, func, insert, or_, select, update
from sqlalchemy.engine import Row

from billing.accounts import account_sql
from billing.store.dates import now_s
from billing.store.webhook_tables import webhook_deliveries, webhook_endpoints, webhook_events
from billing.webhooks import webhooks
from billing.webhooks.endpoint import (
    MAX_ERROR_CHARS,
    Attempt,
    Delivery,
    DeliveryState,
    EventType,
    Outcome,
    UnknownEvent,
)

# Rises when a field of a payload is taken away or changes its meaning; new fields may come at any time.
PAYLOAD_VERSION = 1
# For so long a delivery is tried.
TRIED_FOR_S = 3 * 86_400.0
# A lease that ends later than this was granted before the clock was set back.
ABSURD_S = 3600.0

_e, _d, _v = webhook_endpoints.c, webhook_deliveries.c, webhook_events.c
_now = now_s()
_is_free = or_(_e.leased_until <= _now, _e.leased_until > _now + ABSURD_S)
_NOW = select(_now)


def announce(
    connection: Connection, event_type: EventType, *, workspace_id: str, data: Mapping[str, Any]
) -> str | None:
    """Writes the event for every endpoint that takes it; returns its id, or None where there is none.

    Call it in the transaction of the change itself: then neither exists without the other.
    """
    takers = _takers(connection, event_type, workspace_id)
    return write(connection, event_type, takers, workspace_id=workspace_id, data=data) if takers else None


def write(
    connection: Connection,
    event_type: EventType,
    endpoint_ids: list[str],
    *,
    workspace_id: str | None,
    data: Mapping[str, Any],
) -> str:
    """Writes an event for these endpoints, to be sent at once; returns its id."""
    now: float = connection.execute(_NOW).scalar_one()
    event_id = f"evt_{secrets.token_hex(12)}"
    payload = {
        "version": PAYLOAD_VERSION,
        "id": event_id,
        "type": event_type,
        "created": datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds"),
        "data": dict(data),
    }
    row = {
        "id": event_id,
        "type": event_type,
        "workspace_id": workspace_id,
        "payload": json.dumps(payload, separators=(",", ":")),
        "created_at": now,
    }
    connection.execute(insert(webhook_events), row)
    waiting = {
        "event_id": event_id,
        "state": "waiting",
        "attempts": 0,
        "due_at": now,
        "give_up_at": now + TRIED_FOR_S,
    }
    connection.execute(insert(webhook_deliveries), [{**waiting, "endpoint_id": one} for one in endpoint_ids])
    return event_id


def _takers(connection: Connection, event_type: EventType, workspace_id: str) -> list[str]:
    whose = or_(_e.workspace_id.is_(None), _e.workspace_id == workspace_id)
    found = connection.execute(select(_e.id, _e.events).where(_e.state == "active", whose).order_by(_e.id))
    return [row.id for row in found if not (events := json.loads(row.events)) or event_type in events]


def claim(connection: Connection, worker: str, *, lease_s: float, failing: bool) -> str | None:
    """An endpoint for which something is due, and which nobody sends to; None where there is none.

    `failing`: of those whose last try failed, or of the others.
    """
    lane = _e.failures > 0 if failing else _e.failures == 0
    # Who was served longest ago comes first. Two servers take two rows; SQLite has one writer, and ignores the clause.
    first = (
        select(_e.id).where(_e.state == "active", _is_free, lane, _has_due()).order_by(_e.leased_until, _e.id)
    )
    found = connection.execute(first.limit(1).with_for_update(skip_locked=True)).scalar_one_or_none()
    if found is not None:
        mine = {"worker": worker, "leased_until": _now + lease_s}
        connection.execute(update(webhook_endpoints).where(_e.id == found).values(**mine))
    return found


def anything_due(connection: Connection, *, failing: bool) -> bool:
    """True where `claim` may find one; takes no lock."""
    lane = _e.failures > 0 if failing else _e.failures == 0
    looking = select(_e.id).where(_e.state == "active", _is_free, lane, _has_due()).limit(1)
    return connection.execute(looking).one_or_none() is not None


def next_attempt(connection: Connection, endpoint_id: str, worker: str, *, lease_s: float) -> Attempt | None:
    """The next attempt for an endpoint that `worker` claimed, whose lease begins anew; None where nothing is, or
    where the endpoint is no longer active or the worker's. Then it is free."""
    mine = and_(_e.id == endpoint_id, _e.worker == worker, _e.state == "active")
    renewing = update(webhook_endpoints).where(mine).values(leased_until=_now + lease_s)
    returned = renewing.returning(_e.url, _e.secret, _e.old_secret, _e.old_secret_until, _now.label("at"))
    endpoint = connection.execute(returned).one_or_none()
    if endpoint is None:
        return None
    due = and_(_d.endpoint_id == endpoint_id, _d.state == "waiting", _d.due_at <= _now)
    first = select(_d.event_id, _d.attempts, _v.payload).join(webhook_events, _v.id == _d.event_id).where(due)
    row = connection.execute(first.order_by(_d.due_at, _v.created_at, _v.id).limit(1)).one_or_none()
    if row is None:
        release(connection, endpoint_id, worker)
        return None
    sealed = [endpoint.secret]
    if endpoint.old_secret is not None and endpoint.old_secret_until > endpoint.at:
        sealed.append(endpoint.old_secret)
    return Attempt(
        endpoint_id, worker, endpoint.url, row.event_id, row.payload, row.attempts, tuple(map(bytes, sealed))
    )


def release(connection: Connection, endpoint_id: str, worker: str, *, rest_s: float = 0.0) -> None:
    """Anybody may claim it again, after so many seconds."""
    mine = and_(_e.id == endpoint_id, _e.worker == worker)
    connection.execute(update(webhook_endpoints).where(mine).values(worker=None, leased_until=_now + rest_s))


def record(connection: Connection, attempt: Attempt, outcome: Outcome, *, pause_s: float, actor: str) -> str:
    """Writes what became of a try; returns the delivery's state. One that was delivered stays so, whoever says more."""
    # The endpoint's row first, as whoever removes it does.
    _count_failures(connection, attempt, 0 if outcome.result == "delivered" else _e.failures + 1)
    row = and_(_d.event_id == attempt.event_id, _d.endpoint_id == attempt.endpoint_id)
    tried = {
        "attempts": _d.attempts + 1,
        "last_tried_at": _now,
        "last_status": outcome.status,
        "last_error": outcome.error[:MAX_ERROR_CHARS] if outcome.error else None,
    }
    if outcome.result == "delivered":
        done = update(webhook_deliveries).where(row, _d.state != "delivered")
        connection.execute(done.values(state="delivered", delivered_at=_now, **tried))
        return "delivered"
    again = update(webhook_deliveries).where(row, _d.state == "waiting")
    connection.execute(again.values(due_at=_now + pause_s, **tried))
    connection.execute(again.where(_d.due_at > _d.give_up_at).values(state="failed"))
    if outcome.result == "gone":
        _disable(connection, attempt.endpoint_id, actor)
    state: str = connection.execute(select(_d.state).where(row)).scalar_one()
    return state


def count_waiting(connection: Connection) -> int:
    counting = select(func.count()).select_from(webhook_deliveries).where(_d.state == "waiting")
    return connection.execute(counting).scalar_one()


def _has_due() -> ColumnElement[bool]:
    due = and_(_d.endpoint_id == _e.id, _d.state == "waiting", _d.due_at <= _now)
    return exists().where(due).correlate(webhook_endpoints)


def _count_failures(connection: Connection, attempt: Attempt, failures: ColumnElement[int] | int) -> None:
    counted = update(webhook_endpoints).where(_e.id == attempt.endpoint_id)
    connection.execute(counted.values(failures=failures))


def _disable(connection: Connection, endpoint_id: str, actor: str) -> None:
    still = and_(_e.id == endpoint_id, _e.state == "active")
    reason = "it answered 410 Gone"
    disabling = update(webhook_endpoints).where(still).values(state="disabled", state_reason=reason)
    if connection.execute(disabling).rowcount:
        webhooks.cancel_waiting(connection, endpoint_id)
        found = webhooks.find(connection, endpoint_id)
        webhooks.record(connection, "webhook.disable", found, {"reason": reason}, actor=actor)


# Of events older than this, what no longer waits is deleted.
KEPT_S = 30 * 86_400.0
DELETED_AT_ONCE = 1000


def listed(
    connection: Connection,
    *,
    endpoint: str | None = None,
    workspace: str | None = None,
    state: DeliveryState | None = None,
    limit: int,
) -> list[Delivery]:
    """The latest, newest first: of one endpoint, or of one workspace's endpoints. Raises `UnknownAccount` and
    `UnknownEndpoint`."""
    columns = [*webhook_deliveries.c, _v.type, _v.workspace_id, _v.created_at]
    statement = select(*columns).join(webhook_events, _v.id == _d.event_id)
    if endpoint is not None:
        statement = statement.where(_d.endpoint_id == webhooks.find(connection, endpoint).id)
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
        active = active.where(_e.id == webhooks.find(connection, endpoint).id)
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
