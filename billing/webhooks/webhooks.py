"""Webhooks as an operator manages them: added, listed, removed, tried. What changes is in the audit log too."""

import json
import secrets
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sqlalchemy import Connection, Select, func, insert, select, update
from sqlalchemy.engine import Row

from billing.accounts import account_sql, audit_log
from billing.accounts.account_sql import Page, paged
from billing.accounts.audit_log import AuditEntry
from billing.store.database import Database
from billing.store.dates import now_s
from billing.store.schema import workspaces
from billing.store.webhook_tables import webhook_deliveries, webhook_endpoints
from billing.webhooks import outbox, secret_box
from billing.webhooks.endpoint import (
    Delivery,
    DeliveryState,
    Endpoint,
    TooManyEndpoints,
    UnknownEndpoint,
    checked_events,
    checked_url,
    host_of,
)
from billing.webhooks.secret_box import SecretBox

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


# For so long after a rotation what is sent is signed with both secrets.
OVERLAP_S = 86_400.0


class Webhooks:
    """The webhooks of one ledger. Each change is in the audit log, as made by `actor`, without secrets.

    Every method raises `LedgerUnavailable`, and those that take an id `UnknownEndpoint`.
    """

    def __init__(
        self, database: Database, *, pepper: bytes, actor: str, most: int = 10, allow_http: bool = False
    ) -> None:
        """`most` is how many a workspace may have, and the whole service besides."""
        self._database = database
        self._box = SecretBox(pepper)
        self._actor = actor
        self._most = most
        self._allow_http = allow_http

    async def add(
        self, url: str, *, workspace: str | None = None, events: Iterable[str] = ()
    ) -> tuple[Endpoint, str]:
        """The webhook and its secret, which is shown this once. Of one workspace, or None: of all of them.

        Raises `InvalidEndpoint`, `TooManyEndpoints` and `UnknownAccount`.
        """
        url, wanted = checked_url(url, allow_http=self._allow_http), checked_events(events)
        endpoint_id, made = new_id(), secret_box.mint()
        adding = partial(
            add,
            endpoint_id=endpoint_id,
            url=url,
            workspace=workspace,
            events=wanted,
            sealed=self._box.seal(endpoint_id, made),
            most=self._most,
        )
        details = {"host": host_of(url), "events": list(wanted)}
        return await self._change("webhook.add", adding, details), made

    async def listed(self, workspace: str | None = None, page: Page | None = None) -> list[Endpoint]:
        """Oldest first; with a workspace its own. Raises `UnknownAccount`."""
        return await self._database.read(lambda c: listed(c, workspace, page))

    async def find(self, endpoint_id: str) -> Endpoint:
        return await self._database.read(lambda c: find(c, endpoint_id))

    async def remove(self, endpoint_id: str) -> Endpoint:
        """Nothing more is sent to it, and its secret is forgotten."""
        return await self._change("webhook.remove", lambda c: remove(c, endpoint_id))

    async def enable(self, endpoint_id: str) -> Endpoint:
        """Sends to one again that was disabled. What happened meanwhile was not kept for it."""
        return await self._change("webhook.enable", lambda c: enable(c, endpoint_id))

    async def rotate_secret(self, endpoint_id: str, *, overlap_s: float = OVERLAP_S) -> tuple[Endpoint, str]:
        """The webhook and its new secret. For `overlap_s` the old one signs, too."""
        made = secret_box.mint()
        sealed = self._box.seal(endpoint_id, made)
        rotate = partial(rotate_secret, endpoint_id=endpoint_id, sealed=sealed, overlap_s=overlap_s)
        details = {"overlap_s": overlap_s}
        return await self._change("webhook.rotate_secret", rotate, details), made

    async def deliveries(
        self,
        endpoint: str | None = None,
        *,
        workspace: str | None = None,
        state: DeliveryState | None = None,
        limit: int = 100,
    ) -> list[Delivery]:
        """The latest, newest first. Raises `UnknownAccount`."""
        return await self._database.read(
            lambda c: outbox.listed(c, endpoint=endpoint, workspace=workspace, state=state, limit=limit)
        )

    async def redeliver(self, event_id: str, *, endpoint: str | None = None) -> list[Delivery]:
        """Sends an event again, with the id that it had. Raises `UnknownEvent`."""
        return await self._database.write(lambda c: outbox.redeliver(c, event_id, endpoint))

    async def test(self, endpoint_id: str) -> Delivery:
        """Sends it a `webhook.test`, whatever it takes otherwise."""

        def work(connection: Connection) -> Delivery:
            found = find(connection, endpoint_id)
            data = {"webhook": found.id, "message": "a test of this webhook"}
            event_id = outbox.write(
                connection, "webhook.test", [found.id], workspace_id=found.workspace_id, data=data
            )
            return outbox.listed_of(connection, event_id)[0]

        return await self._database.write(work)

    async def _change(self, action: str, change: Any, details: dict[str, Any] | None = None) -> Endpoint:
        def work(connection: Connection) -> Endpoint:
            changed: Endpoint = change(connection)
            record(connection, action, changed, details or {}, actor=self._actor)
            return changed

        return await self._database.write(work)
