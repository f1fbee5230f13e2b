"""On PostgreSQL, the tables that usage events lie in: one for each month, made before the month begins."""

import logging
from datetime import UTC, date, datetime

from sqlalchemy import Connection, select, text

from billing.errors import LedgerUnavailable, RowRefused
from billing.rollups.event_ids import following, id_of_day
from billing.store.database import Database
from billing.store.database_clock import now_s

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
