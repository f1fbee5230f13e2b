"""Webhooks: what `pith webhook` does."""

from fastapi import APIRouter

from billing.webhooks.endpoint import DeliveryState
from serve.operator import accounts as views
from serve.operator.view import Record
from serve.ops.administration import Caller
from serve.ops.answers import answers
from serve.ops.bodies import LIMIT, Cursor, Limit, NewWebhook, Redelivery, page_of, page_to_read
from serve.ops.idempotency import IdempotencyKey, KeptAnswers


def webhook_routes(kept: KeptAnswers) -> APIRouter:
    routes = APIRouter(prefix="/admin/v1/webhooks", tags=["webhooks"])

    @routes.post("", **answers(views.MadeWebhook, 404, 409, status=201))
    async def add_webhook(body: NewWebhook, admin: Caller, key: IdempotencyKey = None) -> Record:
        """Tell a URL of the events of all workspaces, or of one."""
        return await kept.once(
            admin, key, f"webhook {body!r}", lambda: admin.add_webhook(body.url, body.workspace, body.events)
        )

    @routes.get("", **answers(views.Webhooks, 404))
    async def list_webhooks(
        admin: Caller, workspace: str | None = None, cursor: Cursor = None, limit: Limit = LIMIT
    ) -> Record:
        """Webhooks, oldest first, without their secrets."""
        return page_of(await admin.list_webhooks(workspace, page_to_read(cursor, limit)), limit)

    _deliveries(routes)

    @routes.get("/{webhook}", **answers(views.Webhook, 404))
    async def read_webhook(webhook: str, admin: Caller) -> Record:
        """One webhook, by id."""
        return views.Webhook.row(await admin.webhooks.find(webhook))

    @routes.delete("/{webhook}", **answers(views.Webhook, 404))
    async def remove_webhook(webhook: str, admin: Caller) -> Record:
        """Send it nothing more, and forget its secret; returns what it was."""
        return await admin.remove_webhook(webhook)

    _changes(routes, kept)
    return routes


def _changes(routes: APIRouter, kept: KeptAnswers) -> None:
    @routes.post("/{webhook}/enable", **answers(views.Webhook, 404))
    async def enable_webhook(webhook: str, admin: Caller) -> Record:
        """Send to it again after it was disabled because it answered 410."""
        return await admin.enable_webhook(webhook)

    @routes.post("/{webhook}/rotate-secret", **answers(views.MadeWebhook, 404, 409, status=201))
    async def rotate_secret(webhook: str, admin: Caller, key: IdempotencyKey = None) -> Record:
        """Give it a new secret. For a day the old one signs, too."""
        return await kept.once(
            admin, key, f"rotate webhook {webhook}", lambda: admin.rotate_webhook_secret(webhook)
        )

    @routes.post("/{webhook}/test", **answers(views.Delivery, 404, status=202))
    async def test_webhook(webhook: str, admin: Caller) -> Record:
        """Send it a `webhook.test`."""
        return await admin.test_webhook(webhook)


def _deliveries(routes: APIRouter) -> None:
    @routes.get("/deliveries", **answers(views.Deliveries, 404))
    async def list_deliveries(
        admin: Caller,
        webhook: str | None = None,
        workspace: str | None = None,
        state: DeliveryState | None = None,
        limit: Limit = LIMIT,
    ) -> Record:
        """The latest deliveries, sent or still to be sent, newest first."""
        found = await admin.deliveries(webhook, workspace=workspace, state=state, limit=limit)
        return {"data": found}

    @routes.post("/deliveries/{event}/redeliver", **answers(views.Deliveries, 404, status=202))
    async def redeliver(event: str, body: Redelivery, admin: Caller) -> Record:
        """Send an event again, with the same id."""
        return {"data": await admin.redeliver(event, body.webhook)}
