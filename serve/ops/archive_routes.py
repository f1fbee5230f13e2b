"""Which months are archived, and which a run of `pith archive` would take: that command alone moves them."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends

from billing.archive.month_files import manifest_of
from billing.archive.planned import planned
from billing.rollups import archived
from serve.ops.administration import Admin, Gate
from serve.ops.answers import answers
from serve.ops.shapes.archive import Archive
from serve.ops.shapes.fields import Record
from serve.reports.archived_months import archived_fields, due_fields


def archive_routes(gate: Gate) -> APIRouter:
    routes = APIRouter(prefix="/admin/v1/archive", tags=["books"])
    Caller = Annotated[Admin, Depends(gate)]

    @routes.get("", **answers(Archive))
    async def read_archive(admin: Caller) -> Record:
        """The months whose usage events are in files, with the files, and those that `pith archive` would move now."""
        read, asked = admin.ledgers.patient.read, admin.ledgers.settings.billing.archive
        months = []
        for month in await read(archived.archived):
            manifest = manifest_of(await read(partial(archived.manifest_of, month=month.month)))
            months.append(archived_fields(month, manifest))
        due = await planned(admin.ledgers.patient, asked.keep_months)
        return {
            "keep_months": asked.keep_months,
            "folder": str(asked.folder),
            "months": months,
            "due": [due_fields(one) for one in due],
        }

    return routes
