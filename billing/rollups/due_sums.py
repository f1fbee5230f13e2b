"""The sums of usage made anew: as they are stored, and as events and archived days say that they should be."""

from collections.abc import Sequence
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
    true,
    union_all,
)

from billing.rollups.archived import last_settled_at, not_archived
from billing.rollups.partitions import following
from billing.rollups.usage_sums import DAY, LABELS, OF_EVENT, event_columns, labelled
from billing.store.dates import calendar
from billing.store.rollup_tables import (
    SUMS,
    archived_days,
    archived_months,
    label_days,
    label_months,
    usage_days,
    usage_months,
)
from billing.store.schema import usage_events

_e, _d = usage_events.c, archived_days.c
# The tables of sums, with the column of the span that each adds up.
SPANS = (
    (usage_days, "day"),
    (usage_months, "settled_month"),
    (label_days, "day"),
    (label_months, "settled_month"),
)
_DAYS_OF = {usage_months.name: usage_days, label_months.name: label_days}


def key_of(table: Table) -> tuple[str, ...]:
    """Whose sums a row has, besides the workspace and the span."""
    names = (column.name for column in table.primary_key.columns)
    return tuple(name for name in names if name not in ("workspace_id", *(span for _, span in SPANS)))


def refill(connection: Connection, workspace_id: str | None = None, month: str | None = None) -> None:
    """Its sums, or everybody's, of one month of settlements or of all, from the events that are there and what is kept
    of archived ones. While nobody adds one: the workspace is locked."""
    for table, column in SPANS:
        clearing = delete(table).where(_is_remade(connection, table))
        if workspace_id is not None:
            clearing = clearing.where(table.c.workspace_id == workspace_id)
        if month is not None:
            clearing = clearing.where(_in_month(table, column, month))
        connection.execute(clearing)
        names = ["workspace_id", column, *key_of(table), *SUMS]
        due = due_sums(connection, table, column, workspace_id, month).subquery().c
        connection.execute(insert(table).from_select(names, select(*(due[name] for name in names))))


def _first_remade(connection: Connection) -> datetime | None:
    """From the day that begins then on, sums by label are those of the events that are there. Before, some events are
    archived, and the sums themselves are all that is kept of them by label."""
    archive = last_settled_at(connection)
    if archive is None:
        return None
    return datetime.combine(archive.astimezone(UTC).date() + DAY, time.min, tzinfo=UTC)


def _is_remade(connection: Connection, table: Table) -> ColumnElement[bool]:
    """Of its rows, those that can be made anew."""
    since = _first_remade(connection) if table in (label_days, label_months) else None
    if since is None:
        return true()
    return (
        label_days.c.day >= f"{since:%Y-%m-%d}"
        if table is label_days
        else label_months.c.settled_month >= f"{since:%Y-%m}"
    )


def _in_month(table: Table, column: str, month: str) -> ColumnElement[bool]:
    # A day of it begins with the month, and every text that does is between these.
    return table.c[column].between(month, f"{month}-99")


def stored_sums(
    connection: Connection,
    table: Table,
    column: str,
    workspace_id: str | None = None,
    month: str | None = None,
) -> Select[Any]:
    """Those rows of a table of sums that can be made anew, of one workspace or all, settled in one month or any."""
    columns = [table.c[name] for name in ("workspace_id", column, *key_of(table), *SUMS)]
    stored = select(literal(table.name).label("of_table"), *columns).where(_is_remade(connection, table))
    if workspace_id is not None:
        stored = stored.where(table.c.workspace_id == workspace_id)
    return stored if month is None else stored.where(_in_month(table, column, month))


def days_by_month(months: Table = usage_months) -> Select[Any]:
    """The days' rows as those of `months` should be, not added up yet."""
    days = _DAYS_OF[months.name]
    settled = func.substr(days.c.day, 1, 7).label("settled_month")
    columns = [days.c[name] for name in ("workspace_id", *key_of(months), *SUMS)]
    return select(literal(months.name).label("of_table"), settled, *columns)


def due_sums(
    connection: Connection,
    table: Table,
    column: str,
    workspace_id: str | None = None,
    month: str | None = None,
) -> Select[Any]:
    """Rows as `stored_sums` should have them, of events and of `archived_days`; those of `label_months`, of
    `label_days`."""
    parts = []
    for rows, of in _beneath(connection, table, column):
        part = rows if workspace_id is None else rows.where(of.c.workspace_id == workspace_id)
        if month is not None:
            part = part.where(_settled_in(month) if of is usage_events else _in_month(of, "day", month))
        parts.append(part)
    # Inside, so that PostgreSQL sees the same expressions where it selects and where it groups.
    all_ = union_all(*parts).subquery().c
    groups = [all_[name] for name in ("workspace_id", column, *key_of(table))]
    sums = [func.sum(all_[name]).label(name) for name in SUMS]
    return select(literal(table.name).label("of_table"), *groups, *sums).group_by(*groups)


def _beneath(connection: Connection, table: Table, column: str) -> list[tuple[Select[Any], Table]]:
    """What its rows add up, with the table that each is read from."""
    if table is label_months:
        since = _first_remade(connection)
        of_months = true() if since is None else label_days.c.day >= f"{since:%Y-%m}"
        return [(days_by_month(label_months).where(of_months), label_days)]
    if table is label_days:
        return [(_labelled(connection, kind), usage_events) for kind in LABELS]
    events = _events(connection, column, event_columns(connection, key_of(table)))
    return [(events.where(not_archived(connection)), usage_events), (_archived(column), archived_days)]


def _labelled(connection: Connection, kind: str) -> Select[Any]:
    label, source = labelled(connection, kind)
    own = [literal(kind).label("kind"), label.label("label"), *event_columns(connection, ("month",))]
    events = _events(connection, "day", [_e.project_id, *own]).select_from(source).where(label.is_not(None))
    since = _first_remade(connection)
    return events if since is None else events.where(_e.settled_at >= since)


def _events(connection: Connection, column: str, key: Sequence[ColumnElement[Any]]) -> Select[Any]:
    settled = calendar(connection, _e.settled_at, "day" if column == "day" else "month").label(column)
    sums = [OF_EVENT[name].label(name) for name in SUMS]
    return select(_e.workspace_id.label("workspace_id"), settled, *key, *sums)


def _archived(column: str) -> Select[Any]:
    settled = func.substr(_d.day, 1, 10 if column == "day" else 7).label(column)
    names = (*key_of(usage_days), *SUMS)
    return (
        select(_d.workspace_id, settled, *(_d[name] for name in names))
        .join(archived_months, archived_months.c.month == _d.archived_month)
        .where(archived_months.c.state != "sealed")
    )


def _settled_in(month: str) -> ColumnElement[bool]:
    """Of events."""
    first = date.fromisoformat(f"{month}-01")
    since, until = (datetime.combine(day, time.min, tzinfo=UTC) for day in (first, following(first)))
    return and_(_e.settled_at >= since, _e.settled_at < until)
