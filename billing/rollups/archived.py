"""Which usage events are archived: all with ids before one bound, apart from those that came late and were let in."""

from dataclasses import dataclass
from datetime import date, datetime

from sqlalchemy import ColumnElement, Connection, ScalarSelect, func, or_, select, true

from billing.rollups.event_ids import day_of
from billing.store.rollup_tables import archived_months, late_events
from billing.store.schema import usage_events

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
    """Whether the events of requests of a month such as `2026-01` are."""
    later = select(_m.month).where(_m.month >= month, _m.state != "sealed").limit(1)
    return connection.execute(later).first() is not None


def manifest_of(connection: Connection, month: str) -> str:
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
    """Of all that is archived."""
    found = select(func.max(_m.last_settled_at, type_=_m.last_settled_at.type))
    moment: datetime | None = connection.execute(found.where(_m.state != "sealed")).scalar()
    return moment


def is_late(connection: Connection, event_id: str) -> bool:
    """Whether it was let in although its month is archived."""
    there = select(late_events.c.event_id).where(late_events.c.event_id == event_id)
    return connection.execute(there).first() is not None


def not_archived(connection: Connection) -> ColumnElement[bool]:
    """Of events: those that do not count by `archived_days`."""
    begin = archived_until(connection)
    if not begin:
        return true()
    return or_(_e.event_id < dropped_until(connection), _e.event_id >= begin)
