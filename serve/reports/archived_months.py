"""Archived months in plain values: all money as exact decimal text."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from billing.price import exact_usd
from serve.reports.moments import stamp

if TYPE_CHECKING:
    from billing.archive.archiver import Planned
    from billing.archive.month_files import Manifest
    from billing.rollups.archived import ArchivedMonth


def archived_fields(month: ArchivedMonth, manifest: Manifest) -> dict[str, Any]:
    return {
        "month": month.month,
        "state": "dropped" if month.is_dropped else "dropping",
        "events": month.events,
        "charged_usd": exact_usd(month.charged_nano_usd),
        "written_off_usd": exact_usd(month.written_off_nano_usd),
        "last_settled_at": stamp(month.last_settled_at),
        "files": [
            {"name": file.name, "events": file.events, "bytes": file.bytes, "sha256": file.sha256}
            for file in manifest.files
        ],
    }


def due_fields(one: Planned) -> dict[str, Any]:
    return asdict(one)
