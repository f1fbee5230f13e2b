"""Usage events and adjustments, row by row: what `pith export` writes."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response, StreamingResponse

from billing.export.encoders import Format
from billing.export.exporter import Exporter
from billing.export.selection import selection_of
from billing.rollups.archived import archived
from serve.ops.administration import Admin, Gate
from serve.ops.answers import files
from serve.ops.shapes.moments import Moment

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


def export_routes(gate: Gate) -> APIRouter:
    routes = APIRouter(prefix="/admin/v1/events", tags=["books"])
    Caller = Annotated[Admin, Depends(gate)]

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
        exporter = Exporter(admin.ledgers.patient)
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
        if months := await admin.ledgers.patient.read(archived):
            headers[ARCHIVED] = ",".join(one.month for one in months)
        if limit is None:
            return StreamingResponse(export, media_type=MEDIA_TYPES[format], headers=headers)
        part = b"".join([piece async for piece in export])
        if export.left is not None:
            headers[CURSOR] = export.left.cursor
        return Response(part, media_type=MEDIA_TYPES[format], headers=headers)

    return routes
