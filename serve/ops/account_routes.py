"""Workspaces, projects and keys over HTTP: what `pith workspace`, `pith project` and `pith key` do."""

import json
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends

from billing.originals.original_store import OriginalStore
from serve.ops.administration import Admin, Gate
from serve.ops.answers import answers
from serve.ops.idempotency import IdempotencyKey, Made
from serve.ops.shapes import workspaces as shapes
from serve.ops.shapes.bodies import (
    KeySettings,
    NewKey,
    NewProject,
    NewWorkspace,
    ProjectChange,
    Rotation,
    WorkspaceChange,
    nano_usd,
)
from serve.ops.shapes.fields import Record
from serve.ops.shapes.pages import LIMIT, Cursor, Limit, asked, page
from serve.prompt_compression.options import checked_default, stored_default
from serve.reports.accounts import (
    fields_of,
    key_fields,
    listed_key_fields,
    project_fields,
    with_objects,
    workspace_fields,
)


def workspace_routes(gate: Gate, made: Made) -> APIRouter:
    routes = APIRouter(prefix="/admin/v1/workspaces", tags=["workspaces"])
    Caller = Annotated[Admin, Depends(gate)]

    @routes.post("", **answers(shapes.Workspace, 409, status=201))
    async def create_workspace(body: NewWorkspace, admin: Caller, key: IdempotencyKey = None) -> Record:
        """Make a workspace."""

        async def make() -> dict[str, Any]:
            workspace = await admin.accounts.create_workspace(
                body.name,
                spend_limit_nano_usd=nano_usd(body.spend_limit_usd),
                monthly_limit_nano_usd=nano_usd(body.monthly_limit_usd),
                billing_enabled=body.billing_enabled is not False,
                now=admin.now,
            )
            return workspace_fields(workspace)

        return await made.once(admin, key, f"workspace {body!r}", make)

    @routes.get("", **answers(shapes.Workspaces, 404))
    async def list_workspaces(admin: Caller, cursor: Cursor = None, limit: Limit = LIMIT) -> Record:
        """Workspaces with what they have spent, oldest first; revoked ones too."""
        found = await admin.accounts.list_workspaces(asked(cursor, limit))
        return page([workspace_fields(one) for one in found], limit)

    @routes.get("/{workspace}", **answers(shapes.Workspace, 404))
    async def read_workspace(workspace: str, admin: Caller) -> Record:
        """One workspace, by id or name."""
        return workspace_fields(await admin.accounts.find_workspace(workspace))

    @routes.patch("/{workspace}", **answers(shapes.Workspace, 404))
    async def set_workspace(workspace: str, body: WorkspaceChange, admin: Caller) -> Record:
        """Change its limits, or switch its billing on or off; what is not named stays, and null is no limit."""
        return workspace_fields(await admin.accounts.change_workspace(workspace, body.settings()))

    @routes.post("/{workspace}/revoke", **answers(shapes.Workspace, 404))
    async def revoke_workspace(workspace: str, admin: Caller) -> Record:
        """Revoke it with all its keys, for good."""
        return workspace_fields(await admin.accounts.revoke_workspace(workspace, now=admin.now))

    return routes


def project_routes(gate: Gate, made: Made) -> APIRouter:
    routes = APIRouter(prefix="/admin/v1/projects", tags=["projects"])
    Caller = Annotated[Admin, Depends(gate)]

    @routes.post("", **answers(shapes.Project, 404, 409, status=201))
    async def create_project(body: NewProject, admin: Caller, key: IdempotencyKey = None) -> Record:
        """Make a project in a workspace."""

        async def make() -> dict[str, Any]:
            project = await admin.accounts.create_project(
                body.workspace,
                body.name,
                metered=body.metered is not False,
                limits=body.limits(),
                compression=_compression(admin, body),
                now=admin.now,
            )
            return with_objects(fields_of(project))

        return await made.once(admin, key, f"project {body!r}", make)

    @routes.get("", **answers(shapes.Projects, 404))
    async def list_projects(
        admin: Caller, workspace: str | None = None, cursor: Cursor = None, limit: Limit = LIMIT
    ) -> Record:
        """Projects with the names of their workspaces, oldest first; revoked ones too."""
        found = await admin.accounts.list_projects(workspace, asked(cursor, limit))
        return page([with_objects(project_fields(one)) for one in found], limit)

    _of_one_project(routes, Caller)
    return routes


def _of_one_project(routes: APIRouter, Caller: Any) -> None:
    @routes.get("/{project}", **answers(shapes.Project, 404))
    async def read_project(project: str, admin: Caller) -> Record:
        """One project, by id."""
        return with_objects(fields_of(await admin.accounts.find_project(project)))

    @routes.patch("/{project}", **answers(shapes.Project, 404))
    async def set_project(project: str, body: ProjectChange, admin: Caller) -> Record:
        """Change its limits, its weight, how its chats are compressed, or whether it is metered."""
        values = body.settings()
        if "compression" in values:
            values["compression"] = _compression(admin, body)
        return with_objects(fields_of(await admin.accounts.change_project(project, values)))

    @routes.post("/{project}/revoke", **answers(shapes.Project, 404))
    async def revoke_project(project: str, admin: Caller) -> Record:
        """Revoke it with all its keys, for good."""
        return with_objects(fields_of(await admin.accounts.revoke_project(project, now=admin.now)))

    @routes.post("/{project}/forget-originals", **answers(shapes.Forgotten, 404))
    async def forget_originals(project: str, admin: Caller) -> Record:
        """Delete every original that it has had kept; returns how many there were."""
        store = OriginalStore(admin.ledgers.database)
        return asdict(await store.forget(project, actor=admin.actor, now=admin.now))


def _compression(admin: Admin, body: ProjectChange) -> str | None:
    """What is kept of a project's default. Raises `BadDefault`."""
    if body.compression is None:
        return None
    return stored_default(checked_default(json.dumps(body.compression), admin.ledgers.settings.compression))


def key_routes(gate: Gate, made: Made) -> APIRouter:
    routes = APIRouter(prefix="/admin/v1/keys", tags=["keys"])
    Caller = Annotated[Admin, Depends(gate)]

    @routes.post("", **answers(shapes.MadeKey, 404, 409, status=201))
    async def create_key(body: NewKey, admin: Caller, key: IdempotencyKey = None) -> Record:
        """Make a key. `key` is its secret, shown this once."""

        async def make() -> dict[str, Any]:
            record, token = await admin.accounts.create_key(
                body.project, body.name, terms=body.terms(), now=admin.now
            )
            return {**key_fields(record), "key": token}

        return await made.once(admin, key, f"key {body!r}", make)

    @routes.get("", **answers(shapes.Keys, 404))
    async def list_keys(
        admin: Caller,
        workspace: str | None = None,
        project: str | None = None,
        cursor: Cursor = None,
        limit: Limit = LIMIT,
    ) -> Record:
        """Keys with what they belong to, may and have spent, oldest first; ended ones too."""
        found = await admin.accounts.list_keys(workspace, project, asked(cursor, limit))
        return page([listed_key_fields(one) for one in found], limit)

    _of_one_key(routes, Caller, made)
    return routes


def _of_one_key(routes: APIRouter, Caller: Any, made: Made) -> None:
    @routes.get("/{key_id}", **answers(shapes.Key, 404))
    async def read_key(key_id: str, admin: Caller) -> Record:
        """One key, by id."""
        return key_fields(await admin.accounts.keys.find(key_id))

    @routes.patch("/{key_id}", **answers(shapes.Key, 404))
    async def set_key(key_id: str, body: KeySettings, admin: Caller) -> Record:
        """Change what it may, how much of it and until when, everywhere within 5 seconds; what is not named stays, and
        null is no limit."""
        return key_fields(await admin.accounts.keys.change(key_id, body.change(), now=admin.now))

    @routes.post("/{key_id}/rotate", **answers(shapes.RotatedKey, 404, 409, status=201))
    async def rotate_key(key_id: str, body: Rotation, admin: Caller, key: IdempotencyKey = None) -> Record:
        """Make a key with the same powers, limits and spend, and let the old one end after an overlap."""

        async def make() -> dict[str, Any]:
            overlap = timedelta(seconds=body.overlap_s)
            record, token, old = await admin.accounts.keys.rotate(key_id, overlap=overlap, now=admin.now)
            return {**key_fields(record), "key": token, "replaces": key_fields(old)}

        return await made.once(admin, key, f"rotate {key_id} {body!r}", make)

    @routes.post("/{key_id}/revoke", **answers(shapes.Key, 404))
    async def revoke_key(key_id: str, admin: Caller) -> Record:
        """Revoke it. It stops working within 5 seconds everywhere."""
        return key_fields(await admin.accounts.revoke_key(key_id, now=admin.now))
