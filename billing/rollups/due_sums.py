"""The sums of usage made anew: as they are stored, and as events and archived days say that they should be."""

from datetime import UTC, date, datetime, time
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
    and_,
    delete,
    func,
    insert,
    literal,
    select,
    union_all,
)

from billing.rollups.archived import not_archived
from billing.rollups.partitions import following
from billing.rollups.usage_sums import OF_EVENT, charged_month
from billing.store.dates import calendar
from billing.store.rollup_tables import SUMS, archived_days, archived_months, usage_days, usage_months
from billing.store.schema import usage_events

_e, _d = usage_events.c, archived_days.c
# The tables of sums, with the column of the span that each adds up.
SPANS = ((usage_days, "day"), (usage_months, "settled_month"))
KEY = ("month", "project_id", "key_id", "model_id", "route")


def refill(connection: Connection, workspace_id: str | None = None, month: str | None = None) -> None:
    """Its sums, or everybody's, of one month of settlements or of all, from the events that are there and what is kept
    of archived ones. While nobody adds one: the workspace is locked."""
    for table, column in SPANS:
        clearing = delete(table)
        if workspace_id is not None:
            clearing = clearing.where(table.c.workspace_id == workspace_id)
        if month is not None:
            clearing = clearing.where(_in_month(table, column, month))
        connection.execute(clearing)
        names = ["workspace_id", column, *KEY, *SUMS]
        due = due_sums(connection, table, column, workspace_id, month).subquery().c
        connection.execute(insert(table).from_select(names, select(*(due[name] for name in names))))


def _in_month(table: Table, column: str, month: str) -> ColumnElement[bool]:
    # A day of it begins with the month, and every text that does is between these.
    return table.c[column].between(month, f"{month}-99")


def stored_sums(
    table: Table, column: str, workspace_id: str | None = None, month: str | None = None
) -> Select[Any]:
    """Rows of `usage_days` or `usage_months`, of one workspace or all, settled in one month or any."""
    columns = [table.c[name] for name in ("workspace_id", column, *KEY, *SUMS)]
    stored = select(literal(table.name).label("of_table"), *columns)
    if workspace_id is not None:
        stored = stored.where(table.c.workspace_id == workspace_id)
    return stored if month is None else stored.where(_in_month(table, column, month))


def days_by_month() -> Select[Any]:
    """The rows of `usage_days` as `usage_months` should have them, not added up yet."""
    settled = func.substr(usage_days.c.day, 1, 7).label("settled_month")
    columns = [usage_days.c[name] for name in ("workspace_id", *KEY, *SUMS)]
    return select(literal(usage_months.name).label("of_table"), settled, *columns)


def due_sums(
    connection: Connection,
    table: Table,
    column: str,
    workspace_id: str | None = None,
    month: str | None = None,
) -> Select[Any]:
    """Rows as `stored_sums` should have them, of events and of `archived_days`."""
    span = "day" if table is usage_days else "month"
    events, archived = _events(connection, column, span), _archived(column, span)
    if workspace_id is not None:
        events, archived = (
            events.where(_e.workspace_id == workspace_id),
            archived.where(_d.workspace_id == workspace_id),
        )
    if month is not None:
        events, archived = (
            events.where(_settled_in(month)),
            archived.where(_in_month(archived_days, "day", month)),
        )
    # Inside, so that PostgreSQL sees the same expressions where it selects and where it groups.
    rows = union_all(events, archived).subquery().c
    groups = [rows[name] for name in ("workspace_id", column, *KEY)]
    sums = [func.sum(rows[name]).label(name) for name in SUMS]
    return select(literal(table.name).label("of_table"), *groups, *sums).group_by(*groups)


def _events(connection: Connection, column: str, span: str) -> Select[Any]:
    columns = [
        calendar(connection, _e.settled_at, span).label(column),
        charged_month(connection).label("month"),
        _e.project_id,
        _e.key_id,
        _e.model_id,
        func.coalesce(_e.route, "").label("route"),
        _e.workspace_id.label("workspace_id"),
    ]
    sums = [OF_EVENT[name].label(name) for name in SUMS]
    return select(*columns, *sums).where(not_archived(connection))


def _archived(column: str, span: str) -> Select[Any]:
    chars = 10 if span == "day" else 7
    columns = [func.substr(_d.day, 1, chars).label(column), *(_d[name] for name in KEY)]
    return (
        select(*columns, _d.workspace_id, *(_d[name] for name in SUMS))
        .join(archived_months, archived_months.c.month == _d.archived_month)
        .where(archived_months.c.state != "sealed")
    )


def _settled_in(month: str) -> ColumnElement[bool]:
    """Of events."""
    first = date.fromisoformat(f"{month}-01")
    since, until = (datetime.combine(day, time.min, tzinfo=UTC) for day in (first, following(first)))
    return and_(_e.settled_at >= since, _e.settled_at < until)
