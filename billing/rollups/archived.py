"""Archived months: the bound of the events that are in files, those that came late, and the sums that were kept."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, ScalarSelect, func, or_, select, true

from billing.errors import BillingError
from billing.rollups.partitions import day_of
from billing.store.rollup_tables import SUMS, archived_days, archived_months, late_events
from billing.store.schema import usage_events


class ArchivedSumsChanged(BillingError):
    """Sums cannot be made anew: what is kept of an archived month is not what was kept. Nothing was changed."""

    def __init__(self, month: str, problem: str) -> None:
        super().__init__(
            f"archived {month}: {problem}, and no sum can be made anew from them: restore the ledger's archived_days "
            "of this month from a backup"
        )


class PeriodArchived(BillingError, ValueError):
    """The answer needs single events, and some of them are archived. Sums of whole days are still there."""

    def __init__(self, what: str, last_settled_at: datetime) -> None:
        super().__init__(
            f"{what} needs single events, and those settled up to {last_settled_at:%Y-%m-%d %H:%M} UTC are archived: "
            "ask for whole days (UTC), or for what came later"
        )


_e, _m = usage_events.c, archived_months.c


@dataclass(frozen=True, slots=True)
class ArchivedMonth:
    """One whose events are in files. `until_id` is the first id that is not in it."""

    month: str
    from_id: str
    until_id: str
    events: int
    charged_nano_usd: int
    written_off_nano_usd: int
    last_settled_at: datetime
    is_dropped: bool

    @property
    def until(self) -> date | None:
        """Requests of this day and later are not in it."""
        return day_of(self.until_id)


def archived(connection: Connection) -> list[ArchivedMonth]:
    """The first month first."""
    columns = (_m.month, _m.from_id, _m.until_id, _m.events, _m.charged_nano_usd, _m.written_off_nano_usd)
    statement = select(*columns, _m.last_settled_at, (_m.state == "dropped").label("is_dropped"))
    rows = connection.execute(statement.where(_m.state != "sealed").order_by(_m.month))
    return [ArchivedMonth(*row) for row in rows]


def is_archived(connection: Connection, month: str) -> bool:
    """True where the events of requests of a month such as `2026-01` are."""
    later = select(_m.month).where(_m.month >= month, _m.state != "sealed").limit(1)
    return connection.execute(later).first() is not None


def stored_manifest(connection: Connection, month: str) -> str:
    """The manifest of an archived month's files, as JSON."""
    found: str = connection.execute(select(_m.manifest).where(_m.month == month)).scalar_one()
    return found


def archived_bound() -> ScalarSelect[str]:
    """In SQL, the id before which the database refuses events; NULL: there is no such bound."""
    return select(func.max(_m.until_id)).scalar_subquery()


def sealed_until(connection: Connection) -> str:
    """`archived_bound`; empty where there is none."""
    return connection.execute(select(archived_bound())).scalar() or ""


def archived_until(connection: Connection) -> str:
    """Events with ids before it count as `archived_days` says."""
    return connection.execute(select(func.max(_m.until_id)).where(_m.state != "sealed")).scalar() or ""


def dropped_until(connection: Connection) -> str:
    """Every event with an id before it that is there came late."""
    return (
        connection.execute(
            select(func.max(_m.until_id)).where((_m.state == "dropped").label("is_dropped"))
        ).scalar()
        or ""
    )


def last_settled_at(connection: Connection) -> datetime | None:
    """The last moment of all that is archived."""
    found = select(func.max(_m.last_settled_at, type_=_m.last_settled_at.type))
    moment: datetime | None = connection.execute(found.where(_m.state != "sealed")).scalar()
    return moment


def is_late(connection: Connection, event_id: str) -> bool:
    """True where it was let in although its month is archived."""
    there = select(late_events.c.event_id).where(late_events.c.event_id == event_id)
    return connection.execute(there).first() is not None


def not_archived(connection: Connection) -> ColumnElement[bool]:
    """Condition on events: those that do not count by `archived_days`."""
    begin = archived_until(connection)
    if not begin:
        return true()
    return or_(_e.event_id < dropped_until(connection), _e.event_id >= begin)


_d = archived_days.c
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
