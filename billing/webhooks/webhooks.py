"""Webhooks as an operator manages them: added, listed, removed, tried, and what was sent to them."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from sqlalchemy import Connection

from billing.accounts.account_sql import Page
from billing.store.database import Database
from billing.webhooks import delivery_sql, endpoint_sql, outbox, secret
from billing.webhooks.endpoint import Delivery, DeliveryState, Endpoint, checked_events, checked_url, host_of
from billing.webhooks.secret import SecretBox

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
        endpoint_id, made = endpoint_sql.new_id(), secret.mint()
        adding = partial(
            endpoint_sql.add,
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
        return await self._database.read(lambda c: endpoint_sql.listed(c, workspace, page))

    async def find(self, endpoint_id: str) -> Endpoint:
        return await self._database.read(lambda c: endpoint_sql.find(c, endpoint_id))

    async def remove(self, endpoint_id: str) -> Endpoint:
        """Nothing more is sent to it, and its secret is forgotten."""
        return await self._change("webhook.remove", lambda c: endpoint_sql.remove(c, endpoint_id))

    async def enable(self, endpoint_id: str) -> Endpoint:
        """Sends to one again that was disabled. What happened meanwhile was not kept for it."""
        return await self._change("webhook.enable", lambda c: endpoint_sql.enable(c, endpoint_id))

    async def rotate_secret(self, endpoint_id: str, *, overlap_s: float = OVERLAP_S) -> tuple[Endpoint, str]:
        """The webhook and its new secret. For `overlap_s` the old one signs, too."""
        made = secret.mint()
        sealed = self._box.seal(endpoint_id, made)
        rotate = partial(
            endpoint_sql.rotate_secret, endpoint_id=endpoint_id, sealed=sealed, overlap_s=overlap_s
        )
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
            lambda c: delivery_sql.listed(c, endpoint=endpoint, workspace=workspace, state=state, limit=limit)
        )

    async def redeliver(self, event_id: str, *, endpoint: str | None = None) -> list[Delivery]:
        """Sends an event again, with the id that it had. Raises `UnknownEvent`."""
        return await self._database.write(lambda c: delivery_sql.redeliver(c, event_id, endpoint))

    async def test(self, endpoint_id: str) -> Delivery:
        """Sends it a `webhook.test`, whatever it takes otherwise."""

        def work(connection: Connection) -> Delivery:
            found = endpoint_sql.find(connection, endpoint_id)
            data = {"webhook": found.id, "message": "a test of this webhook"}
            event_id = outbox.write(
                connection, "webhook.test", [found.id], workspace_id=found.workspace_id, data=data
            )
            return delivery_sql.listed_of(connection, event_id)[0]

        return await self._database.write(work)

    async def _change(self, action: str, change: Any, details: dict[str, Any] | None = None) -> Endpoint:
        def work(connection: Connection) -> Endpoint:
            changed: Endpoint = change(connection)
            endpoint_sql.record(connection, action, changed, details or {}, actor=self._actor)
            return changed

        return await self._database.write(work)
