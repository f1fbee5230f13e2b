"""Webhooks: what `pith webhook` does."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends

from billing.webhooks.endpoint import DeliveryState, Endpoint
from serve.ops.administration import Admin, Gate
from serve.ops.answers import answers
from serve.ops.idempotency import IdempotencyKey, Made
from serve.ops.shapes import webhooks as shapes
from serve.ops.shapes.fields import Record
from serve.ops.shapes.pages import LIMIT, Cursor, Limit, asked, page
from serve.reports.webhooks import delivery_fields, webhook_fields


def webhook_routes(gate: Gate, made: Made) -> APIRouter:
    routes = APIRouter(prefix="/admin/v1/webhooks", tags=["webhooks"])
    Caller = Annotated[Admin, Depends(gate)]

    @routes.post("", **answers(shapes.MadeWebhook, 404, 409, status=201))
    async def add_webhook(body: shapes.NewWebhook, admin: Caller, key: IdempotencyKey = None) -> Record:
        """Tell a URL of the events of all workspaces, or of one."""

        async def make() -> dict[str, Any]:
            added, secret = await admin.webhooks.add(body.url, workspace=body.workspace, events=body.events)
            return {**_fields(added), "secret": secret}

        return await made.once(admin, key, f"webhook {body!r}", make)

    @routes.get("", **answers(shapes.Webhooks, 404))
    async def list_webhooks(
        admin: Caller, workspace: str | None = None, cursor: Cursor = None, limit: Limit = LIMIT
    ) -> Record:
        """Webhooks, oldest first, without their secrets."""
        found = await admin.webhooks.listed(workspace, asked(cursor, limit))
        return page([_fields(one) for one in found], limit)

    _deliveries(routes, Caller)

    @routes.get("/{webhook}", **answers(shapes.Webhook, 404))
    async def read_webhook(webhook: str, admin: Caller) -> Record:
        """One webhook, by id."""
        return _fields(await admin.webhooks.find(webhook))

    @routes.delete("/{webhook}", **answers(shapes.Webhook, 404))
    async def remove_webhook(webhook: str, admin: Caller) -> Record:
        """Send it nothing more, and forget its secret; returns what it was."""
        return _fields(await admin.webhooks.remove(webhook))

    _changes(routes, Caller, made)
    return routes


def _changes(routes: APIRouter, Caller: Any, made: Made) -> None:
    @routes.post("/{webhook}/enable", **answers(shapes.Webhook, 404))
    async def enable_webhook(webhook: str, admin: Caller) -> Record:
        """Send to it again after it was disabled because it answered 410."""
        return _fields(await admin.webhooks.enable(webhook))

    @routes.post("/{webhook}/rotate-secret", **answers(shapes.MadeWebhook, 404, 409, status=201))
    async def rotate_secret(webhook: str, admin: Caller, key: IdempotencyKey = None) -> Record:
        """Give it a new secret. For a day the old one signs, too."""

        async def make() -> dict[str, Any]:
            changed, secret = await admin.webhooks.rotate_secret(webhook)
            return {**_fields(changed), "secret": secret}

        return await made.once(admin, key, f"rotate webhook {webhook}", make)

    @routes.post("/{webhook}/test", **answers(shapes.Delivery, 404, status=202))
    async def test_webhook(webhook: str, admin: Caller) -> Record:
        """Send it a `webhook.test`."""
        return delivery_fields(await admin.webhooks.test(webhook))


def _deliveries(routes: APIRouter, Caller: Any) -> None:
    @routes.get("/deliveries", **answers(shapes.Deliveries, 404))
    async def list_deliveries(
        admin: Caller,
        webhook: str | None = None,
        workspace: str | None = None,
        state: DeliveryState | None = None,
        limit: Limit = LIMIT,
    ) -> Record:
        """What was sent, or is to be: the latest, newest first."""
        found = await admin.webhooks.deliveries(webhook, workspace=workspace, state=state, limit=limit)
        return {"data": [delivery_fields(one) for one in found]}

    @routes.post("/deliveries/{event}/redeliver", **answers(shapes.Deliveries, 404, status=202))
    async def redeliver(event: str, body: shapes.Redelivery, admin: Caller) -> Record:
        """Send an event again, with the same id."""
        found = await admin.webhooks.redeliver(event, endpoint=body.webhook)
        return {"data": [delivery_fields(one) for one in found]}


def _fields(endpoint: Endpoint) -> dict[str, Any]:
    return {**webhook_fields(endpoint), "events": list(endpoint.events)}
