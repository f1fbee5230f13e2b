"""What the books say: usage, statements, receipts, the audit log."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query
from fastapi.responses import PlainTextResponse
from starlette.responses import Response

from billing.accounts.audit_log import AuditEntry
from billing.books.dimensions import COMPARED_BY, DIMENSIONS, LINES, Dimension
from billing.books.receipts import receipts as read_receipts
from billing.rollups.archived import archived
from serve.ops.administration import Admin, Gate
from serve.ops.answers import answers, headers, text_of
from serve.ops.shapes import books as shapes
from serve.ops.shapes.fields import Record
from serve.ops.shapes.moments import Moment
from serve.ops.shapes.pages import LIMIT, Limit
from serve.reports.csv_text import as_csv
from serve.reports.moments import stamp
from serve.reports.receipts import receipt_fields
from serve.reports.statement import statement_fields
from serve.reports.usage import COLUMNS, COMPARED, SAVINGS, SUMS, comparison_fields, usage_fields

MOST_SUMS = 10_000
HAS_MORE = "X-Has-More"
_USAGE = {**text_of("text/csv"), **headers({HAS_MORE: "Of CSV: what `has_more` is in JSON."})}


def book_routes(gate: Gate) -> APIRouter:
    routes = APIRouter(prefix="/admin/v1", tags=["books"])
    Caller = Annotated[Admin, Depends(gate)]
    _usage(routes, Caller)

    @routes.get("/statements/{workspace}/{month}", **answers(shapes.Statement, 404))
    async def read_statement(workspace: str, month: str, admin: Caller) -> Record:
        """What a workspace owed, used and paid in a month, such as 2026-11."""
        return statement_fields(await admin.books.statement(workspace, month), admin.now)

    @routes.get("/receipts", **answers(shapes.Receipts, 404))
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
        found = await admin.ledgers.patient.read(
            partial(read_receipts, **which, since=since, until=until, limit=limit)
        )
        months = [one.month for one in await admin.ledgers.patient.read(archived)]
        return {"data": [receipt_fields(one) for one in found], "archived": months}

    @routes.get("/audit", **answers(shapes.AuditEntries, 404))
    async def read_audit_log(
        admin: Caller,
        workspace: str | None = None,
        since: Moment = None,
        until: Moment = None,
        limit: Limit = LIMIT,
    ) -> Record:
        """Who changed which account or collection: the latest entries, oldest first."""
        found = await admin.books.audit_log(workspace=workspace, since=since, until=until, limit=limit)
        return {"data": [_entry_fields(one) for one in found]}

    return routes


def _usage(routes: APIRouter, Caller: Any) -> None:
    @routes.get("/usage", **answers(shapes.Usage, 404, **_USAGE))
    async def read_usage(
        admin: Caller,
        by: Annotated[list[Dimension] | None, Query()] = None,
        workspace: str | None = None,
        since: Moment = None,
        until: Moment = None,
        savings: bool = False,
        format: Literal["json", "csv"] = "json",
        limit: Annotated[int, Query(ge=1, le=MOST_SUMS, description="Rows.")] = MOST_SUMS,
    ) -> Record | Response:
        """What was used and what it cost; with `savings`, what compression saved, as measured. `has_more`, in CSV the
        header `X-Has-More`, says that the period or the workspace has to be narrowed to see all."""
        of = _dimensions(by or (LINES if savings else ["workspace"]), COMPARED_BY if savings else DIMENSIONS)
        which: dict[str, Any] = {"workspace": workspace, "since": since, "until": until}
        if savings:
            rows = [comparison_fields(one) for one in await admin.books.comparisons(of, **which)]
        else:
            rows = [usage_fields(one) for one in await admin.books.usage(of, **which, limit=limit + 1)]
        shown, has_more = rows[:limit], len(rows) > limit
        if format == "json":
            return {"data": shown, "has_more": has_more}
        columns = [column for name in of for column in COLUMNS[name]]
        text = as_csv([*columns, *(COMPARED if savings else (*SUMS, *SAVINGS))], shown)
        return PlainTextResponse(
            text, media_type="text/csv", headers={HAS_MORE: "true" if has_more else "false"}
        )


def _dimensions(by: Sequence[Dimension], choices: Sequence[Dimension]) -> list[Dimension]:
    """Each once. Raises `ValueError` for one by which these sums cannot be made."""
    for name in by:
        if name not in choices:
            raise ValueError(f"by: savings are measured by {', '.join(choices)}, and not by {name}")
    return list(dict.fromkeys(by))


def _entry_fields(entry: AuditEntry) -> Record:
    return {
        "at": stamp(entry.at),
        "actor": entry.actor,
        "action": entry.action,
        "workspace_id": entry.workspace_id,
        "subject": entry.subject,
        "details": dict(entry.details),
    }
