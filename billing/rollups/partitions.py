"""Event ids begin with the millisecond of their request, so stretches of time are stretches of ids, for ever."""

import logging
from datetime import UTC, date, datetime, time

from sqlalchemy import Connection, select, text

from billing.errors import LedgerUnavailable, RowRefused
from billing.store.database import Database
from billing.store.dates import now_s

DIGITS = 12


def id_of(moment: datetime) -> str:
    """The ids of requests that came earlier are less."""
    return f"{int(moment.timestamp() * 1000):0{DIGITS}x}"


def id_of_day(day: date) -> str:
    return id_of(datetime.combine(day, time.min, tzinfo=UTC))


def second_of(event_id: str) -> float:
    """The moment that an id begins with, in seconds since 1970."""
    return int(event_id[:DIGITS], 16) / 1000


def day_of(event_id: str) -> date | None:
    """The day (UTC) that an id begins with; None where it begins with no time."""
    try:
        return datetime.fromtimestamp(second_of(event_id), UTC).date()
    except (ValueError, OverflowError, OSError):
        return None


def month_of_day(day: date) -> date:
    """Its first day."""
    return day.replace(day=1)


def following(month: date) -> date:
    """The first day of the month after that of `month`."""
    return date(month.year + month.month // 12, month.month % 12 + 1, 1)


log = logging.getLogger(__name__)
MONTHS_AHEAD = 3
# How long to wait for a lock that keeps requests waiting meanwhile. If it is not to be had, the next round tries again.
PATIENCE_MS = 500
_BOUNDS = text(
    "SELECT c.relname AS name, pg_get_expr(c.relpartbound, c.oid) AS bounds FROM pg_inherits i "
    "JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'usage_events'::regclass"
)


async def make_months(database: Database) -> list[str]:
    """Make the tables of this month and of those to come, where they are missing; the names of those that were made.
    Raises `LedgerUnavailable`."""
    made = []
    for month in await database.read(_missing):
        try:
            made.append(await database.write(lambda c, month=month: make_month(c, month)))  # type: ignore[misc]
        except (LedgerUnavailable, RowRefused) as error:
            # Another server may have made it, or the table for the rest has events of the month already. Nothing waits
            # for this: what has no table of its own goes to that one.
            log.warning("the usage events of %s get no table of their own now: %s", f"{month:%Y-%m}", error)
    return made


def make_month(connection: Connection, month: date) -> str:
    """The table of one month, of which no event may be there yet; its name."""
    name = name_of(month)
    connection.execute(text(f"SET LOCAL lock_timeout = {PATIENCE_MS}"))
    # Which the new table refers to. They are waited for first, while nothing else is locked: a settlement has locked a
    # workspace before it adds an event, and would wait for the events' lock, and this for the settlement's.
    connection.execute(text("LOCK TABLE workspaces, projects, api_keys, prices IN SHARE ROW EXCLUSIVE MODE"))
    bounds = f"FROM ('{id_of_day(month)}') TO ('{id_of_day(following(month))}')"
    connection.execute(text(f"CREATE TABLE {name} PARTITION OF usage_events FOR VALUES {bounds}"))
    connection.execute(
        text(
            f"CREATE TRIGGER usage_events_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON {name} "
            "FOR EACH STATEMENT EXECUTE FUNCTION usage_events_append_only()"
        )
    )
    return name


def name_of(month: date) -> str:
    return f"usage_events_{month:%Y_%m}"


def _missing(connection: Connection) -> list[date]:
    """Months up to `MONTHS_AHEAD` from now that are in no table: neither in their own nor in that of before them."""
    if connection.dialect.name == "sqlite":
        return []
    now = datetime.fromtimestamp(connection.execute(select(now_s())).scalar_one(), UTC)
    month, missing = date(now.year, now.month, 1), []
    bounds = [row.bounds for row in connection.execute(_BOUNDS)]
    for _ in range(MONTHS_AHEAD + 1):
        if not any(_covers(each, id_of_day(month)) for each in bounds):
            missing.append(month)
        month = following(month)
    return missing


def _covers(bounds: str, event_id: str) -> bool:
    """Whether `FOR VALUES FROM (…) TO (…)` has it."""
    if bounds == "DEFAULT":
        return False
    first, last = bounds.removeprefix("FOR VALUES FROM (").removesuffix(")").split(") TO (")
    return (first == "MINVALUE" or first.strip("'") <= event_id) and event_id < last.strip("'")
