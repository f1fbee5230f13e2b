"""Keys: what `pith key` does."""

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends

from serve.ops.administration import Admin, Gate
from serve.ops.answers import answers
from serve.ops.idempotency import IdempotencyKey, Made
from serve.ops.shapes import workspaces as shapes
from serve.ops.shapes.bodies import KeySettings, NewKey, Rotation
from serve.ops.shapes.fields import Record
from serve.ops.shapes.pages import LIMIT, Cursor, Limit, asked, page
from serve.reports.accounts import key_fields, listed_key_fields


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
