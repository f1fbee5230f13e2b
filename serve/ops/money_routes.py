"""What workspaces are asked to pay and were given back, and usage that waits for the ledger."""

import secrets
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends
from starlette.responses import Response, StreamingResponse

from billing.accounts.account_sql import Page
from billing.adjustments.adjustment import Adjustment, InvalidAdjustment
from billing.adjustments.adjustments import Adjustments
from billing.collections.collection import State
from billing.collections.collector import Collector
from billing.errors import LedgerUnavailable
from billing.ledger.replay import retry
from billing.ledger.spool import drop_event
from serve.ops.administration import Admin, Gate
from serve.ops.answers import answers, files
from serve.ops.idempotency import IdempotencyKey, Made
from serve.ops.shapes import money as shapes
from serve.ops.shapes.bodies import CollectionCut, CollectionMark, NewAdjustment, nano_usd
from serve.ops.shapes.fields import Record
from serve.ops.shapes.moments import Moment
from serve.ops.shapes.pages import LIMIT, MOST, Cursor, Limit, asked, page
from serve.reports.adjustments import adjustment_fields
from serve.reports.collections import EXPORTED, collection_fields
from serve.reports.csv_text import as_csv, as_json_lines
from serve.reports.spool import spooled_fields


def collection_routes(gate: Gate, made: Made) -> APIRouter:
    routes = APIRouter(prefix="/admin/v1/collections", tags=["collections"])
    Caller = Annotated[Admin, Depends(gate)]

    @routes.get("", **answers(shapes.Collections, 404))
    async def list_collections(
        admin: Caller,
        workspace: str | None = None,
        state: State | None = None,
        cursor: Cursor = None,
        limit: Limit = LIMIT,
    ) -> Record:
        """Collections, oldest first."""
        found = await admin.collector.listed(workspace=workspace, state=state, page=asked(cursor, limit))
        return page([collection_fields(one) for one in found], limit)

    @routes.post("", **answers(shapes.CutCollections, 404, 409, status=201))
    async def cut_collection(body: CollectionCut, admin: Caller, key: IdempotencyKey = None) -> Record:
        """Ask for a workspace's uncollected whole cents now; `data` is empty where there is not even one."""

        async def make() -> dict[str, Any]:
            cut = await admin.collector.cut_now(body.workspace, now=admin.now)
            return {"data": [collection_fields(cut)] if cut else []}

        return await made.once(admin, key, f"cut {body!r}", make)

    @routes.get("/export", **files(("text/csv", "application/jsonl")))
    async def export_collections(
        admin: Caller, format: Literal["csv", "jsonl"] = "csv", since: Moment = None, until: Moment = None
    ) -> Response:
        """The collections cut in a period, for another program."""
        parts = _exported(admin.collector, since, until)
        # Where the ledger is away, the answer says so.
        first = await anext(parts)
        media_type = "text/csv; charset=utf-8" if format == "csv" else "application/jsonl"
        return StreamingResponse(_encoded(format, first, parts), media_type=media_type)

    @routes.post("/{collection}/mark", **answers(shapes.Collection, 404, 409))
    async def mark_collection(collection: str, body: CollectionMark, admin: Caller) -> Record:
        """Record what became of it. `paid` and `void` are final."""
        marked = await admin.collector.mark(
            collection, body.state, reference=body.reference, note=body.note, now=admin.now
        )
        return collection_fields(marked)

    return routes


async def _exported(
    collector: Collector, since: datetime | None, until: datetime | None
) -> AsyncIterator[list[dict[str, Any]]]:
    """All of a period, `MOST` at a time, and at least one part, which may be empty."""
    after: str | None = None
    while True:
        found = await collector.listed(since=since, until=until, page=Page(MOST, after))
        yield [collection_fields(one) for one in found]
        if len(found) < MOST:
            return
        after = found[-1].id


async def _encoded(
    format: Literal["csv", "jsonl"], first: list[dict[str, Any]], rest: AsyncIterator[list[dict[str, Any]]]
) -> AsyncIterator[str]:
    yield as_csv(EXPORTED, first) if format == "csv" else as_json_lines(first)
    async for rows in rest:
        yield as_csv(EXPORTED, rows, header=False) if format == "csv" else as_json_lines(rows)


def adjustment_routes(gate: Gate) -> APIRouter:
    routes = APIRouter(prefix="/admin/v1/adjustments", tags=["adjustments"])
    Caller = Annotated[Admin, Depends(gate)]

    @routes.post("", **answers(shapes.Adjustment, 404, 409, status=201))
    async def create_adjustment(body: NewAdjustment, admin: Caller, key: IdempotencyKey = None) -> Record:
        """A credit, an adjustment or a refund. The same Idempotency-Key twice is one, whatever happened between.
        Without one the answer has the key that was used, also a 503 after which nobody knows whether it was made."""
        used = key or f"admin-{secrets.token_hex(8)}"
        try:
            return adjustment_fields(await _adjusted(admin, body, used))
        except LedgerUnavailable as error:
            raise LedgerUnavailable(
                f"{error}; it is unknown whether it was made: send it again with Idempotency-Key: {used}"
            ) from error

    @routes.get("", **answers(shapes.Adjustments, 404))
    async def list_adjustments(
        admin: Caller,
        workspace: str | None = None,
        since: Moment = None,
        until: Moment = None,
        limit: Limit = LIMIT,
    ) -> Record:
        """The latest, oldest first."""
        found = await admin.adjustments.listed(workspace=workspace, since=since, until=until, limit=limit)
        return {"data": [adjustment_fields(one) for one in found]}

    return routes


async def _adjusted(admin: Admin, body: NewAdjustment, key: str) -> Adjustment:
    """Raises `InvalidAdjustment` for a kind without what it needs, and what `Adjustments` raises."""
    amount = nano_usd(body.usd)
    if body.kind == "refund":
        event_id = await _refunded_event(admin, body)
        return await admin.adjustments.refund(
            event_id, nano_usd=amount, reason=body.reason, idempotency_key=key
        )
    of_event = (body.event_id, body.request_id, body.since)
    if body.workspace is None or any(one is not None for one in of_event):
        raise InvalidAdjustment("workspace", f"a {body.kind} names a workspace, and no usage event")
    if amount is None:
        raise InvalidAdjustment("usd", f"a {body.kind} has an amount")
    act = admin.adjustments.credit if body.kind == "credit" else admin.adjustments.adjust
    return await act(body.workspace, nano_usd=amount, reason=body.reason, idempotency_key=key)


async def _refunded_event(admin: Admin, body: NewAdjustment) -> str:
    """Raises `InvalidAdjustment`, `UnknownRequest` and `AmbiguousRequest`."""
    if body.event_id is not None and (body.workspace, body.request_id, body.since) == (None, None, None):
        return body.event_id
    if body.event_id is not None or body.workspace is None or body.request_id is None:
        raise InvalidAdjustment(
            "event_id", "a refund names a usage event alone, or a request_id and its workspace"
        )
    adjustments = Adjustments(admin.ledgers.patient, actor=admin.actor)
    return await adjustments.event_of_request(body.workspace, body.request_id, since=body.since)


def spool_routes(gate: Gate) -> APIRouter:
    routes = APIRouter(prefix="/admin/v1/spool", tags=["spool"])
    Caller = Annotated[Admin, Depends(gate)]

    @routes.get("", **answers(shapes.SpooledEvents))
    async def list_spool(admin: Caller, limit: Limit = LIMIT) -> Record:
        """Usage on this machine that the ledger refused, and then what waits for it, oldest first."""
        spool = admin.ledgers.spool
        found = [*await spool.refused(limit), *await spool.waiting(limit)]
        return {"data": [spooled_fields(one) for one in found]}

    @routes.post("/{event_id}/retry", **answers(shapes.Retried, 404))
    async def retry_spooled(event_id: str, admin: Caller) -> Record:
        """Offer an event that was set aside to the ledger again, with all that waits."""
        return {"outcome": await retry(admin.ledgers.spool, admin.ledgers.database, event_id)}

    @routes.post("/{event_id}/drop", **answers(shapes.SpooledEvents, 404))
    async def drop_spooled(event_id: str, admin: Caller) -> Record:
        """Remove an event that was set aside, for good: it is never charged."""
        ledgers = admin.ledgers
        dropped = await drop_event(
            ledgers.spool, ledgers.database, event_id, actor=admin.actor, now=admin.now
        )
        return {"data": [spooled_fields(one) for one in dropped]}

    return routes
