"""Adapters over HTTP: what `pith adapter` does."""

import asyncio

from fastapi import APIRouter

from serve.operator import adapters as views
from serve.operator.adapters import NewAdapter, NotInForce, ServedAdapters
from serve.operator.operator import Operator
from serve.operator.view import Record
from serve.ops.administration import Caller
from serve.ops.answers import answers
from serve.ops.idempotency import IdempotencyKey, KeptAnswers


def adapter_routes(kept: KeptAnswers) -> APIRouter:
    routes = APIRouter(prefix="/admin/v1/adapters", tags=["adapters"])

    @routes.post("", **answers(views.Adapter, 409, status=201))
    async def add_adapter(body: NewAdapter, admin: Caller, key: IdempotencyKey = None) -> Record:
        """Offer an adapter of a model that runs; answers when every process does."""

        async def make() -> Record:
            return await asyncio.to_thread(served(admin).add, body, admin.actor)

        return await kept.once(admin, key, f"adapter {body!r}", make)

    @routes.get("", **answers(views.Adapters, 409))
    async def list_adapters(admin: Caller) -> Record:
        """Adapters on offer, in the order of the catalog."""
        return {"data": await asyncio.to_thread(served(admin).listed)}

    @routes.delete("/{adapter:path}", **answers(views.Adapter, 404, 409))
    async def remove_adapter(adapter: str, admin: Caller) -> Record:
        """Offer it no more; returns what it was. Its requests that run end as they would have."""
        return await asyncio.to_thread(served(admin).remove, adapter, admin.actor)

    return routes


def served(admin: Operator) -> ServedAdapters:
    """Raises `NotInForce` where this process cannot change the server."""
    if admin.adapters is None:
        raise NotInForce(
            "this process has joined a server and cannot change it: ask where pith serve started it"
        )
    return admin.adapters
