"""The SQL of webhooks as an operator manages them. What changes is in the audit log, in the same transaction."""

import json
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Select, func, insert, select, update
from sqlalchemy.engine import Row

from billing.accounts import account_sql, audit_log
from billing.accounts.account_sql import Page, paged
from billing.accounts.audit_log import AuditEntry
from billing.store.dates import now_s
from billing.store.schema import workspaces
from billing.store.webhook_tables import webhook_deliveries, webhook_endpoints
from billing.webhooks.endpoint import Endpoint, TooManyEndpoints, UnknownEndpoint

_e, _d = webhook_endpoints.c, webhook_deliveries.c


def new_id() -> str:
    return f"whe_{secrets.token_hex(10)}"


def add(
    connection: Connection,
    endpoint_id: str,
    *,
    url: str,
    workspace: str | None,
    events: tuple[str, ...],
    sealed: bytes,
    most: int,
) -> Endpoint:
    """Raises `UnknownAccount` and `TooManyEndpoints`: of one workspace, or of the service, there are at most `most`."""
    owner = None if workspace is None else account_sql.find_workspace(connection, workspace).id
    if owner is not None:
        # Two that are added at once are counted one after the other.
        account_sql.lock(connection, workspaces, owner)
    same_owner = _e.workspace_id.is_(None) if owner is None else _e.workspace_id == owner
    counting = select(func.count()).select_from(webhook_endpoints).where(same_owner, _e.state != "removed")
    if connection.execute(counting).scalar_one() >= most:
        raise TooManyEndpoints(most)
    row = {
        "id": endpoint_id,
        "workspace_id": owner,
        "url": url,
        "events": json.dumps(events),
        "secret": sealed,
        "old_secret_until": 0.0,
        "state": "active",
        "failures": 0,
        "leased_until": 0.0,
    }
    connection.execute(insert(webhook_endpoints).values(created_at=now_s(), **row))
    return find(connection, endpoint_id)


def find(connection: Connection, endpoint_id: str) -> Endpoint:
    """Raises `UnknownEndpoint`, also for one that was removed."""
    row = None
    if endpoint_id.isprintable():
        wanted = _selection().where(_e.id == endpoint_id, _e.state != "removed")
        row = connection.execute(wanted).one_or_none()
    if row is None:
        raise UnknownEndpoint(endpoint_id)
    return _endpoint(row)


def listed(connection: Connection, workspace: str | None = None, page: Page | None = None) -> list[Endpoint]:
    """Oldest first, without those that were removed. With a workspace: its own. Raises `UnknownAccount`."""
    statement = paged(connection, _selection().where(_e.state != "removed"), webhook_endpoints, page)
    if workspace is not None:
        owner = account_sql.find_workspace(connection, workspace)
        statement = statement.where(_e.workspace_id == owner.id)
    return [_endpoint(row) for row in connection.execute(statement)]


def remove(connection: Connection, endpoint_id: str) -> Endpoint:
    """Forgets its secret, and sends it nothing more. Raises `UnknownEndpoint`."""
    found = find(connection, endpoint_id)
    gone = {"state": "removed", "secret": None, "old_secret": None}
    connection.execute(update(webhook_endpoints).where(_e.id == endpoint_id).values(**gone))
    cancel_waiting(connection, endpoint_id)
    return found


def enable(connection: Connection, endpoint_id: str) -> Endpoint:
    """Sends to one again that was disabled. Raises `UnknownEndpoint`."""
    find(connection, endpoint_id)
    active = {"state": "active", "state_reason": None, "failures": 0}
    connection.execute(update(webhook_endpoints).where(_e.id == endpoint_id).values(**active))
    return find(connection, endpoint_id)


def rotate_secret(connection: Connection, endpoint_id: str, sealed: bytes, *, overlap_s: float) -> Endpoint:
    """Signs with both secrets for `overlap_s`, and then with the new one. Raises `UnknownEndpoint`."""
    find(connection, endpoint_id)
    both = {"old_secret": _e.secret, "old_secret_until": now_s() + overlap_s, "secret": sealed}
    connection.execute(update(webhook_endpoints).where(_e.id == endpoint_id).values(**both))
    return find(connection, endpoint_id)


def cancel_waiting(connection: Connection, endpoint_id: str) -> None:
    waiting = update(webhook_deliveries).where(_d.endpoint_id == endpoint_id, _d.state == "waiting")
    connection.execute(waiting.values(state="cancelled"))


def record(
    connection: Connection, action: str, endpoint: Endpoint, details: Mapping[str, Any], *, actor: str
) -> None:
    now = datetime.fromtimestamp(connection.execute(select(now_s())).scalar_one(), UTC)
    audit_log.record(connection, AuditEntry(now, actor, action, endpoint.workspace_id, endpoint.id, details))


def _selection() -> Select[Any]:
    named = workspaces.c.name.label("workspace_name")
    return select(webhook_endpoints, named).outerjoin(workspaces, workspaces.c.id == _e.workspace_id)


def _endpoint(row: Row[Any]) -> Endpoint:
    return Endpoint(
        id=row.id,
        workspace_id=row.workspace_id,
        workspace_name=row.workspace_name,
        url=row.url,
        events=tuple(json.loads(row.events)),
        state=row.state,
        state_reason=row.state_reason,
        failures=row.failures,
        created_at=datetime.fromtimestamp(row.created_at, UTC),
    )
