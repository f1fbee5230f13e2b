"""Whether what is kept of archived months is what was kept when their events were read for the last time."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, select

from billing.store.rollup_tables import SUMS, archived_days, archived_months

_d, _m = archived_days.c, archived_months.c
KEY = ("workspace_id", "day", "month", "project_id", "key_id", "model_id", "route")
_TOTALS = {
    "requests": "events",
    "cost_nano_usd": "charged_nano_usd",
    "written_off_nano_usd": "written_off_nano_usd",
}


@dataclass(frozen=True, slots=True)
class WrongArchive:
    """An archived month whose sums were changed since. Nothing in the ledger says what they were."""

    month: str
    problem: str


def digest_of_sums(rows: Iterable[Sequence[Any]]) -> str:
    """SHA-256 of rows of `KEY` and `SUMS`, in any order."""
    lines = sorted(json.dumps([*row[: len(KEY)], *map(int, row[len(KEY) :])]) for row in rows)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def wrong_archives(connection: Connection, *, full: bool) -> list[WrongArchive]:
    """By the totals of each month; `full`: by every row of it."""
    sums = [func.coalesce(func.sum(_d[name]), 0) for name in _TOTALS]
    totals = select(_d.archived_month, *sums).group_by(_d.archived_month)
    kept = {row[0]: tuple(map(int, row[1:])) for row in connection.execute(totals)}
    columns = (_m[name] for name in _TOTALS.values())
    months = select(_m.month, _m.manifest, *columns).where(_m.state != "sealed").order_by(_m.month)
    found = []
    for month, manifest, *due in connection.execute(months).all():
        if kept.get(month, (0, 0, 0)) != tuple(due):
            found.append(WrongArchive(month, "its sums do not add up to what was archived"))
        elif full and _digest(connection, month) != json.loads(manifest)["sums_sha256"]:
            found.append(WrongArchive(month, "its sums are not those that were kept"))
    return found


def _digest(connection: Connection, month: str) -> str:
    columns = [_d[name] for name in (*KEY, *SUMS)]
    return digest_of_sums(connection.execute(select(*columns).where(_d.archived_month == month)))
