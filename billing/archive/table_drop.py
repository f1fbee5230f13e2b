"""On PostgreSQL, drops the tables that have events of an archived month and nothing else: at once, with their disk."""

from sqlalchemy import Connection, text

from billing.archive.month_sql import Month
from billing.rollups.partitions import PATIENCE_MS

_TABLES = text(
    "SELECT c.oid::regclass::text AS name, pg_get_expr(c.relpartbound, c.oid) AS bounds FROM pg_inherits i "
    "JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'usage_events'::regclass ORDER BY 1"
)


def tables_of(connection: Connection, month: Month) -> list[str]:
    """Not that of the months before the first with a table of its own, nor that for the rest: what comes late to an
    archived month lies there."""
    if connection.dialect.name == "sqlite":
        return []
    return [row.name for row in connection.execute(_TABLES) if _is_within(row.bounds, month)]


def drop_table(connection: Connection, name: str) -> None:
    """Requests wait for this while it waits for those under way: never longer than `PATIENCE_MS`, then it fails."""
    connection.execute(text(f"SET LOCAL lock_timeout = {PATIENCE_MS}"))
    connection.execute(text(f"ALTER TABLE usage_events DETACH PARTITION {name}"))
    connection.execute(text(f"DROP TABLE {name}"))


def _is_within(bounds: str, month: Month) -> bool:
    if bounds == "DEFAULT" or "MINVALUE" in bounds:
        return False
    first, last = bounds.removeprefix("FOR VALUES FROM (").removesuffix(")").split(") TO (")
    return month.from_id <= first.strip("'") and last.strip("'") <= month.until_id
