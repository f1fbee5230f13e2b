"""Collections, adjustments and the spool over HTTP: what `pith collections`, `pith adjustment` and `pith spool` do."""

import secrets
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Literal

from fastapi import APIRouter
from starlette.responses import Response, StreamingResponse

from billing.accounts.account_sql import Page
from billing.adjustments.adjustment import InvalidAdjustment
from billing.collections.collection import State
from billing.errors import LedgerUnavailable
from billing.ledger.recording import retry
from billing.ledger.spool import drop_event
from serve.operator import money as views
from serve.operator.operator import Operator
from serve.operator.rows import as_csv, as_json_lines
from serve.operator.view import Record
from serve.ops.administration import Caller
from serve.ops.answers import answers, files
from serve.ops.bodies import (
    LIMIT,
    MOST,
    CollectionCut,
    CollectionMark,
    Cursor,
    Limit,
    Moment,
    NewAdjustment,
    nano_usd,
    page_of,
    page_to_read,
)
from serve.ops.idempotency import IdempotencyKey, KeptAnswers


def collection_routes(kept: KeptAnswers) -> APIRouter:
    routes = APIRouter(prefix="/admin/v1/collections", tags=["collections"])

    @routes.get("", **answers(views.Collections, 404))
    async def list_collections(
        admin: Caller,
        workspace: str | None = None,
        state: State | None = None,
        cursor: Cursor = None,
        limit: Limit = LIMIT,
    ) -> Record:
        """Collections, oldest first."""
        found = await admin.collections(workspace=workspace, state=state, page=page_to_read(cursor, limit))
        return page_of(found, limit)

    @routes.post("", **answers(views.CutCollections, 404, 409, status=201))
    async def cut_collection(body: CollectionCut, admin: Caller, key: IdempotencyKey = None) -> Record:
        """Ask for a workspace's uncollected whole cents now; `data` is empty where there is not even one."""

        async def make() -> Record:
            return {"data": await admin.cut_collection(body.workspace)}

        return await kept.once(admin, key, f"cut {body!r}", make)

    @routes.get("/export", **files(("text/csv", "application/jsonl")))
    async def export_collections(
        admin: Caller, format: Literal["csv", "jsonl"] = "csv", since: Moment = None, until: Moment = None
    ) -> Response:
        """The collections cut in a period, for another program."""
        parts = _exported(admin, since, until)
        # Where the ledger is away, the answer says so.
        first = await anext(parts)
        media_type = "text/csv; charset=utf-8" if format == "csv" else "application/jsonl"
        return StreamingResponse(_encoded(format, first, parts), media_type=media_type)

    @routes.post("/{collection}/mark", **answers(views.Collection, 404, 409))
    async def mark_collection(collection: str, body: CollectionMark, admin: Caller) -> Record:
        """Record what became of it. `paid` and `void` are final."""
        return await admin.mark_collection(collection, body.state, reference=body.reference, note=body.note)

    return routes


async def _exported(
    admin: Operator, since: datetime | None, until: datetime | None
) -> AsyncIterator[list[Record]]:
    """All of a period, `MOST` at a time, and at least one part, which may be empty."""
    after: str | None = None
    while True:
        found = await admin.collections(since=since, until=until, page=Page(MOST, after))
        yield found
        if len(found) < MOST:
            return
        after = found[-1]["id"]


async def _encoded(
    format: Literal["csv", "jsonl"], first: list[Record], rest: AsyncIterator[list[Record]]
) -> AsyncIterator[str]:
    columns = tuple(views.Collection.model_fields)
    yield as_csv(columns, first) if format == "csv" else as_json_lines(first)
    async for rows in rest:
        yield as_csv(columns, rows, header=False) if format == "csv" else as_json_lines(rows)


def adjustment_routes() -> APIRouter:
    routes = APIRouter(prefix="/admin/v1/adjustments", tags=["adjustments"])

    @routes.post("", **answers(views.Adjustment, 404, 409, status=201))
    async def create_adjustment(body: NewAdjustment, admin: Caller, key: IdempotencyKey = None) -> Record:
        """A credit, an adjustment or a refund. The same Idempotency-Key twice is one, whatever happened between.
        Without one the answer has the key that was used, also a 503 after which nobody knows whether it was made."""
        used = key or f"admin-{secrets.token_hex(8)}"
        try:
            return await _adjusted(admin, body, used)
        except LedgerUnavailable as error:
            raise LedgerUnavailable(
                f"{error}; it is unknown whether it was made: send it again with Idempotency-Key: {used}"
            ) from error

    @routes.get("", **answers(views.Adjustments, 404))
    async def list_adjustments(
        admin: Caller,
        workspace: str | None = None,
        since: Moment = None,
        until: Moment = None,
        limit: Limit = LIMIT,
    ) -> Record:
        """The latest, oldest first."""
        found = await admin.list_adjustments(workspace=workspace, since=since, until=until, limit=limit)
        return {"data": found}

    return routes


async def _adjusted(admin: Operator, body: NewAdjustment, key: str) -> Record:
    """Raises `InvalidAdjustment` for a kind without what it needs, and what `Adjustments` raises."""
    amount = nano_usd(body.usd)
    if body.kind == "refund":
        event_id = await _refunded_event(admin, body)
        return await admin.refund(event_id, nano_usd=amount, reason=body.reason, idempotency_key=key)
    of_event = (body.event_id, body.request_id, body.since)
    if body.workspace is None or any(one is not None for one in of_event):
        raise InvalidAdjustment("workspace", f"a {body.kind} names a workspace, and no usage event")
    if amount is None:
        raise InvalidAdjustment("usd", f"a {body.kind} has an amount")
    act = admin.credit if body.kind == "credit" else admin.adjust
    return await act(body.workspace, nano_usd=amount, reason=body.reason, idempotency_key=key)


async def _refunded_event(admin: Operator, body: NewAdjustment) -> str:
    """Raises `InvalidAdjustment`, `UnknownRequest` and `AmbiguousRequest`."""
    if body.event_id is not None and (body.workspace, body.request_id, body.since) == (None, None, None):
        return body.event_id
    if body.event_id is not None or body.workspace is None or body.request_id is None:
        raise InvalidAdjustment(
            "event_id", "a refund names a usage event alone, or a request_id and its workspace"
        )
    return await admin.event_of_request(body.workspace, body.request_id, since=body.since)


def spool_routes() -> APIRouter:
    routes = APIRouter(prefix="/admin/v1/spool", tags=["spool"])

    @routes.get("", **answers(views.SpooledEvents))
    async def list_spool(admin: Caller, limit: Limit = LIMIT) -> Record:
        """Usage on this machine that the ledger refused, and then what waits for it, oldest first."""
        found = [*await admin.spool.refused(limit), *await admin.spool.waiting(limit)]
        return {"data": [views.spooled_row(one) for one in found]}

    @routes.post("/{event_id}/retry", **answers(views.Retried, 404))
    async def retry_spooled(event_id: str, admin: Caller) -> Record:
        """Offer an event that was set aside to the ledger again, with all that waits."""
        return {"outcome": await retry(admin.spool, admin.database, event_id)}

    @routes.post("/{event_id}/drop", **answers(views.SpooledEvents, 404))
    async def drop_spooled(event_id: str, admin: Caller) -> Record:
        """Remove an event that was set aside, for good: it is never charged."""
        dropped = await drop_event(admin.spool, admin.database, event_id, actor=admin.actor, now=admin.now)
        return {"data": [views.spooled_row(one) for one in dropped]}

    return routes
