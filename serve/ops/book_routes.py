"""The books over HTTP: usage, statements, receipts, the audit log, reconciliations, the archive and exports."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, cast

from fastapi import APIRouter, Query
from fastapi.responses import PlainTextResponse
from starlette.responses import Response, StreamingResponse

from billing.books.saving import COMPARED_BY, DIMENSIONS, LINES, Dimension, PreservedBy
from billing.export.exporter import Exporter
from billing.export.rows import Format, selection_of
from serve.operator import books as views
from serve.operator.money import ReconciliationJob
from serve.operator.rows import as_csv
from serve.operator.view import Record
from serve.ops.administration import Caller
from serve.ops.answers import answers, files, headers, text_of
from serve.ops.bodies import LIMIT, Limit, Moment, Month, NewReconciliation
from serve.ops.reconciling import Options, Reconciling

MOST_SUMS = 10_000
HAS_MORE = "X-Has-More"
_USAGE = {**text_of("text/csv"), **headers({HAS_MORE: "Of CSV: what `has_more` is in JSON."})}


def book_routes() -> APIRouter:
    routes = APIRouter(prefix="/admin/v1", tags=["books"])
    _usage(routes)

    @routes.get("/statements/{workspace}/{month}", **answers(views.Statement, 404))
    async def read_statement(workspace: str, month: Month, admin: Caller) -> Record:
        """The statement of a workspace: what it owed, used and paid in a month, such as 2026-11."""
        return await admin.statement(workspace, month)

    @routes.get("/receipts", **answers(views.Receipts, 404))
    async def read_compression_receipts(
        admin: Caller,
        workspace: str | None = None,
        project: str | None = None,
        id: str | None = None,
        since: Moment = None,
        until: Moment = None,
        limit: Limit = LIMIT,
    ) -> Record:
        """The receipts of the latest compressions, oldest first; `archived` names the months whose receipts are in
        files."""
        which: dict[str, Any] = {"workspace": workspace, "project": project, "id": id}
        found = await admin.receipts(**which, since=since, until=until, limit=limit)
        return {"data": found, "archived": [one.month for one in await admin.archived_months()]}

    @routes.get("/audit", **answers(views.AuditEntries, 404))
    async def read_audit_log(
        admin: Caller,
        workspace: str | None = None,
        since: Moment = None,
        until: Moment = None,
        limit: Limit = LIMIT,
    ) -> Record:
        """The log of who changed which account or collection: the latest entries, oldest first."""
        found = await admin.audit_log(workspace=workspace, since=since, until=until, limit=limit)
        return {"data": found}

    return routes


def _usage(routes: APIRouter) -> None:
    @routes.get("/usage", **answers(views.Usage, 404, **_USAGE))
    async def read_usage(
        admin: Caller,
        by: Annotated[list[Dimension] | None, Query()] = None,
        workspace: str | None = None,
        project: str | None = None,
        since: Moment = None,
        until: Moment = None,
        savings: bool = False,
        format: Literal["json", "csv"] = "json",
        limit: Annotated[int, Query(ge=1, le=MOST_SUMS, description="Rows.")] = MOST_SUMS,
    ) -> Record | Response:
        """Usage and its cost; with `savings`, what compression saved, as measured, and in JSON what it changed in
        replies. `has_more`, in CSV the header `X-Has-More`, says that the period or the workspace has to be narrowed to
        see all. By `person` or `tag`, which go with workspace, project, day and month, the most expensive come first,
        and a request counts for each of its tags; `person` is the keyed hash that is kept."""
        of = _dimensions(by or (LINES if savings else ["workspace"]), COMPARED_BY if savings else DIMENSIONS)
        which: dict[str, Any] = {"workspace": workspace, "since": since, "until": until}
        kept: Record = {}
        if savings:
            if project is not None:
                raise ValueError("project: savings are measured of whole workspaces")
            rows = await admin.savings(of, **which)
            kept["preservation"] = await admin.preservation([*cast(list[PreservedBy], of), "kind"], **which)
        else:
            rows = await admin.usage(of, **which, project=project, limit=limit + 1)
        shown, has_more = rows[:limit], len(rows) > limit
        if format == "json":
            return {"data": shown, "has_more": has_more, **kept}
        columns = [column for name in of for column in views.COLUMNS[name]]
        text = as_csv([*columns, *(views.COMPARED if savings else (*views.SUMS, *views.SAVINGS))], shown)
        return PlainTextResponse(
            text, media_type="text/csv", headers={HAS_MORE: "true" if has_more else "false"}
        )


def _dimensions(by: Sequence[Dimension], choices: Sequence[Dimension]) -> list[Dimension]:
    """Each once. Raises `ValueError` for one by which these sums cannot be made."""
    for name in by:
        if name not in choices:
            raise ValueError(f"by: savings are measured by {', '.join(choices)}, and not by {name}")
    return list(dict.fromkeys(by))


def reconciliation_routes(reconciling: Reconciling) -> APIRouter:
    routes = APIRouter(prefix="/admin/v1/reconciliations", tags=["books"])

    @routes.post("", **answers(ReconciliationJob, 409, status=202))
    async def begin_reconciliation(admin: Caller, body: NewReconciliation | None = None) -> Record:
        """Prove that events, balances, holds and prices agree. One runs at a time: asked for again while it runs, the
        answer names it."""
        wanted = body or NewReconciliation()
        return reconciling.begin(admin, Options(full=wanted.full, rebuild=wanted.rebuild))

    @routes.get("/{job_id}", **answers(ReconciliationJob, 404))
    async def read_reconciliation(job_id: str, admin: Caller) -> Record:
        """Its state: `running`, `done` with what was found, or `failed`."""
        return reconciling.found(job_id)

    return routes


def archive_routes() -> APIRouter:
    routes = APIRouter(prefix="/admin/v1/archive", tags=["books"])

    @routes.get("", **answers(views.Archive))
    async def read_archive(admin: Caller) -> Record:
        """The months whose usage events are in files, with the files, and those that `pith archive` would move now."""
        return await admin.archive()

    return routes


MEDIA_TYPES: dict[Format, str] = {
    "jsonl": "application/jsonl",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}
UNTIL, CURSOR, ARCHIVED = "X-Export-Until", "X-Export-Cursor", "X-Archived-Months"
_HEADERS = {
    UNTIL: "The end that was used, where the next export begins.",
    CURSOR: "With `limit`: `cursor` of the next part; the last part has none.",
    ARCHIVED: "Months whose usage events are in files, and not here, parted by commas.",
}
# A part is in memory before its headers can name the place after it.
MOST_ROWS = 10_000


def export_routes() -> APIRouter:
    routes = APIRouter(prefix="/admin/v1/events", tags=["books"])

    @routes.get("/export", **files(MEDIA_TYPES.values(), 404, **_HEADERS))
    async def export_events(
        admin: Caller,
        format: Format = "jsonl",
        workspace: str | None = None,
        project: str | None = None,
        since: Moment = None,
        until: Moment = None,
        limit: Annotated[
            int | None, Query(ge=1, le=MOST_ROWS, description="Rows of a part; all in one, unless given.")
        ] = None,
        cursor: Annotated[str | None, Query(max_length=500, description="Of an earlier export.")] = None,
    ) -> Response:
        """Usage events and adjustments. `X-Export-Until` is the end that was used, where the next export begins.
        Without `limit` all is streamed, in bounded memory. With it `X-Export-Cursor` is the `cursor` of the next part,
        which has in it what was asked for at first; the last part has none. `X-Archived-Months` names months whose
        usage events are in files, and not here."""
        exporter = Exporter(admin.patient)
        if cursor is None:
            asked = await exporter.selection(workspace=workspace, project=project, since=since, until=until)
        elif any(one is not None for one in (workspace, project, since, until)):
            raise ValueError(
                "cursor: has the workspace, the project and the period in it; give none of them with it"
            )
        else:
            asked = selection_of(cursor)
        export = exporter.stream(format, asked, limit=limit)
        headers = {UNTIL: asked.until.isoformat()}
        if months := await admin.archived_months():
            headers[ARCHIVED] = ",".join(one.month for one in months)
        if limit is None:
            return StreamingResponse(export, media_type=MEDIA_TYPES[format], headers=headers)
        part = b"".join([piece async for piece in export])
        if export.left is not None:
            headers[CURSOR] = export.left.cursor
        return Response(part, media_type=MEDIA_TYPES[format], headers=headers)

    return routes
