"""Workspaces, projects, keys and webhooks over HTTP: the verbs of pith with the same names."""

import json
from datetime import timedelta
from typing import Any

from fastapi import APIRouter

from billing.webhooks.endpoint import DeliveryState
from serve.operator import accounts as views
from serve.operator.operator import Operator
from serve.operator.view import Record
from serve.ops.administration import Caller
from serve.ops.answers import answers
from serve.ops.bodies import (
    LIMIT,
    Cursor,
    KeySettings,
    Limit,
    NewKey,
    NewProject,
    NewWebhook,
    NewWorkspace,
    ProjectChange,
    Redelivery,
    Rotation,
    WorkspaceChange,
    page_of,
    page_to_read,
)
from serve.ops.idempotency import IdempotencyKey, KeptAnswers
from serve.prompt_compression.options import checked_default, stored_default


def workspace_routes(kept: KeptAnswers) -> APIRouter:
    routes = APIRouter(prefix="/admin/v1/workspaces", tags=["workspaces"])

    @routes.post("", **answers(views.Workspace, 409, status=201))
    async def create_workspace(body: NewWorkspace, admin: Caller, key: IdempotencyKey = None) -> Record:
        """Make a workspace."""

        async def make() -> Record:
            return await admin.create_workspace(body.name, **body.settings())

        return await kept.once(admin, key, f"workspace {body!r}", make)

    @routes.get("", **answers(views.Workspaces, 404))
    async def list_workspaces(admin: Caller, cursor: Cursor = None, limit: Limit = LIMIT) -> Record:
        """Workspaces with what they have spent, oldest first; revoked ones too."""
        return page_of(await admin.workspaces(page_to_read(cursor, limit)), limit)

    @routes.get("/{workspace}", **answers(views.Workspace, 404))
    async def read_workspace(workspace: str, admin: Caller) -> Record:
        """One workspace, by id or name."""
        return views.workspace_row(await admin.accounts.find_workspace(workspace))

    @routes.patch("/{workspace}", **answers(views.Workspace, 404))
    async def set_workspace(workspace: str, body: WorkspaceChange, admin: Caller) -> Record:
        """Change its limits or its time zone, or switch its billing on or off; what is not named stays, and null is no
        limit."""
        return await admin.change_workspace(workspace, body.settings())

    @routes.post("/{workspace}/revoke", **answers(views.Workspace, 404))
    async def revoke_workspace(workspace: str, admin: Caller) -> Record:
        """Revoke it with all its keys, for good."""
        return await admin.revoke_workspace(workspace)

    return routes


def project_routes(kept: KeptAnswers) -> APIRouter:
    routes = APIRouter(prefix="/admin/v1/projects", tags=["projects"])

    @routes.post("", **answers(views.Project, 404, 409, status=201))
    async def create_project(body: NewProject, admin: Caller, key: IdempotencyKey = None) -> Record:
        """Make a project in a workspace."""

        async def make() -> Record:
            return await admin.create_project(body.workspace, body.name, **_settings(admin, body))

        return await kept.once(admin, key, f"project {body!r}", make)

    @routes.get("", **answers(views.Projects, 404))
    async def list_projects(
        admin: Caller, workspace: str | None = None, cursor: Cursor = None, limit: Limit = LIMIT
    ) -> Record:
        """Projects with the names of their workspaces, oldest first; revoked ones too."""
        return page_of(await admin.projects(workspace, page_to_read(cursor, limit)), limit)

    _of_one_project(routes)
    return routes


def _of_one_project(routes: APIRouter) -> None:
    @routes.get("/{project}", **answers(views.Project, 404))
    async def read_project(project: str, admin: Caller) -> Record:
        """One project, by id."""
        return views.Project.row(await admin.accounts.find_project(project))

    @routes.patch("/{project}", **answers(views.Project, 404))
    async def set_project(project: str, body: ProjectChange, admin: Caller) -> Record:
        """Change its limits, its weight, how its chats are compressed, what its requests name, or whether it is
        metered."""
        return await admin.change_project(project, _settings(admin, body))

    @routes.post("/{project}/revoke", **answers(views.Project, 404))
    async def revoke_project(project: str, admin: Caller) -> Record:
        """Revoke it with all its keys, for good."""
        return await admin.revoke_project(project)

    @routes.post("/{project}/forget-originals", **answers(views.Forgotten, 404))
    async def forget_originals(project: str, admin: Caller) -> Record:
        """Delete every original that it has had kept; returns how many there were."""
        return await admin.forget_originals(project)


def _settings(admin: Operator, body: ProjectChange) -> dict[str, Any]:
    """With the compression as the ledger keeps it. Raises `BadDefault`."""
    values = body.settings()
    if values.get("compression") is not None:
        asked = checked_default(json.dumps(body.compression), admin.settings.compression)
        values["compression"] = stored_default(asked)
    return values


def key_routes(kept: KeptAnswers) -> APIRouter:
    routes = APIRouter(prefix="/admin/v1/keys", tags=["keys"])

    @routes.post("", **answers(views.MadeKey, 404, 409, status=201))
    async def create_key(body: NewKey, admin: Caller, key: IdempotencyKey = None) -> Record:
        """Make a key. `key` is its secret, shown this once."""
        return await kept.once(
            admin, key, f"key {body!r}", lambda: admin.create_key(body.project, body.name, body.terms())
        )

    @routes.get("", **answers(views.Keys, 404))
    async def list_keys(
        admin: Caller,
        workspace: str | None = None,
        project: str | None = None,
        cursor: Cursor = None,
        limit: Limit = LIMIT,
    ) -> Record:
        """Keys with what they belong to, may and have spent, oldest first; ended ones too."""
        return page_of(await admin.keys(workspace, project, page_to_read(cursor, limit)), limit)

    _of_one_key(routes, kept)
    return routes


def _of_one_key(routes: APIRouter, kept: KeptAnswers) -> None:
    @routes.get("/{key_id}", **answers(views.Key, 404))
    async def read_key(key_id: str, admin: Caller) -> Record:
        """One key, by id."""
        return views.Key.row(await admin.accounts.keys.find(key_id))

    @routes.patch("/{key_id}", **answers(views.Key, 404))
    async def set_key(key_id: str, body: KeySettings, admin: Caller) -> Record:
        """Change what it may, how much of it and until when, everywhere within 5 seconds; what is not named stays, and
        null is no limit."""
        return await admin.change_key(key_id, body.change())

    @routes.post("/{key_id}/rotate", **answers(views.RotatedKey, 404, 409, status=201))
    async def rotate_key(key_id: str, body: Rotation, admin: Caller, key: IdempotencyKey = None) -> Record:
        """Make a key with the same powers, limits and spend, and let the old one end after an overlap."""
        return await kept.once(
            admin,
            key,
            f"rotate {key_id} {body!r}",
            lambda: admin.rotate_key(key_id, timedelta(seconds=body.overlap_s)),
        )

    @routes.post("/{key_id}/revoke", **answers(views.Key, 404))
    async def revoke_key(key_id: str, admin: Caller) -> Record:
        """Revoke it. It stops working within 5 seconds everywhere."""
        return await admin.revoke_key(key_id)


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
