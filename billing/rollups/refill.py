"""The sums of a workspace: where they are not what its events add up to, in any column, and made anew."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Any

from sqlalchemy import Connection, Select, Table, and_, delete, func, insert, literal, or_, select, union_all
from sqlalchemy.sql.elements import ColumnElement

from billing.rollups.archived import not_archived
from billing.rollups.partitions import following
from billing.rollups.usage_sums import OF_EVENT, charged_month
from billing.store.dates import calendar
from billing.store.rollup_tables import SUMS, archived_days, archived_months, usage_days, usage_months
from billing.store.schema import usage_events

_e, _d = usage_events.c, archived_days.c
_SPANS = ((usage_days, "day"), (usage_months, "settled_month"))
_KEY = ("project_id", "key_id", "model_id", "route")
Key = tuple[str, ...]
Rows = dict[Key, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class WrongRow:
    """A row of sums that is not what the events add up to. `key`: day or month of settlement, month charged, project,
    key, model, route. `stored` and `due` are by name, of what differs."""

    workspace_id: str
    table: str
    key: Key
    stored: dict[str, int]
    due: dict[str, int]

    @property
    def settled_month(self) -> str:
        return self.key[0][:7]


def months_of_sums(connection: Connection) -> list[tuple[str, str]]:
    """Every workspace with every month of settlements that sums have of it, such as `2026-11`: by month, since its
    events lie together."""
    days = select(usage_days.c.workspace_id, func.substr(usage_days.c.day, 1, 7).label("settled"))
    months = select(usage_months.c.workspace_id, usage_months.c.settled_month)
    both = days.union(months).subquery().c
    statement = select(both.workspace_id, both.settled).order_by(both.settled, both.workspace_id)
    return [(row[0], row[1]) for row in connection.execute(statement)]


def wrong_rows(connection: Connection, workspace_id: str, month: str) -> list[WrongRow]:
    """Wrong rows of its sums of one month of settlements, compared in every column. In one snapshot."""
    found = []
    for table, column in _SPANS:
        stored = _rows(connection, _stored(table, column, workspace_id, month))
        due = _rows(connection, _due(connection, table, column, workspace_id, month))
        nothing = (0,) * len(SUMS)
        for key in sorted(stored.keys() | due.keys()):
            one, other = stored.get(key, nothing), due.get(key, nothing)
            if one != other:
                found.append(_wrong(workspace_id, table, key, one, other))
    return found


def refill(connection: Connection, workspace_id: str | None = None, month: str | None = None) -> None:
    """Its sums, or everybody's, of one month of settlements or of all, from the events that are there and what is kept
    of archived ones. While nobody adds one: the workspace is locked."""
    for table, column in _SPANS:
        clearing = delete(table)
        if workspace_id is not None:
            clearing = clearing.where(table.c.workspace_id == workspace_id)
        if month is not None:
            clearing = clearing.where(_in_month(table, column, month))
        connection.execute(clearing)
        names = [column, "month", *_KEY, *SUMS, "workspace_id"]
        due = _due(connection, table, column, workspace_id, month)
        connection.execute(insert(table).from_select(names, due))


def _wrong(
    workspace_id: str, table: Table, key: Key, one: tuple[int, ...], other: tuple[int, ...]
) -> WrongRow:
    differing = [place for place, name in enumerate(SUMS) if one[place] != other[place]]
    return WrongRow(
        workspace_id,
        table.name,
        key,
        {SUMS[place]: one[place] for place in differing},
        {SUMS[place]: other[place] for place in differing},
    )


def _rows(connection: Connection, statement: Select[Any]) -> Rows:
    names = 2 + len(_KEY)
    # PostgreSQL sums integers into a NUMERIC.
    return {
        tuple(row[:names]): tuple(map(int, row[names : names + len(SUMS)]))
        for row in connection.execute(statement)
    }


def _in_month(table: Table, column: str, month: str) -> ColumnElement[bool]:
    # A day of it begins with the month, and every text that does is between these.
    return table.c[column].between(month, f"{month}-99")


def _stored(table: Table, column: str, workspace_id: str, month: str) -> Select[Any]:
    columns = [table.c[name] for name in (column, "month", *_KEY, *SUMS)]
    return select(*columns).where(table.c.workspace_id == workspace_id, _in_month(table, column, month))


def _due(
    connection: Connection,
    table: Table,
    column: str,
    workspace_id: str | None = None,
    month: str | None = None,
) -> Select[Any]:
    """Rows as the table should have them, of events and of `archived_days`, and the workspace of each: of one or all,
    settled in one month or any."""
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
    groups = [rows[name] for name in (column, "month", *_KEY)]
    sums = [func.sum(rows[name]).label(name) for name in SUMS]
    return select(*groups, *sums, rows.workspace_id).group_by(*groups, rows.workspace_id)


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
    columns = [func.substr(_d.day, 1, chars).label(column), _d.month, *(_d[name] for name in _KEY)]
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


_COLUMNS = ("workspace_id", "settled_month", "month", "project_id", "key_id", "model_id", "route")
MOST_NAMED = 1000


def unequal_sums(connection: Connection) -> list[WrongRow]:
    """At most `MOST_NAMED`, each with what `usage_months` has as `stored`, and what `usage_days` add up to as `due`."""
    settled = func.substr(usage_days.c.day, 1, 7).label("settled_month")
    of_day = [settled if name == "settled_month" else usage_days.c[name] for name in _COLUMNS]
    sides = union_all(
        select(
            *(usage_months.c[name] for name in _COLUMNS),
            *(usage_months.c[name].label(f"stored_{name}") for name in SUMS),
            *(literal(0).label(f"due_{name}") for name in SUMS),
        ),
        select(
            *of_day,
            *(literal(0).label(f"stored_{name}") for name in SUMS),
            *(usage_days.c[name].label(f"due_{name}") for name in SUMS),
        ),
    ).subquery()
    stored, due = ([func.sum(sides.c[f"{side}_{name}"]) for name in SUMS] for side in ("stored", "due"))
    groups = [sides.c[name] for name in _COLUMNS]
    differing = or_(*(one != other for one, other in zip(stored, due, strict=True)))
    found = select(*groups, *stored, *due).group_by(*groups).having(differing)
    rows = connection.execute(found.order_by(*groups).limit(MOST_NAMED)).all()
    return [_unequal(tuple(row)) for row in rows]


def _unequal(row: tuple[object, ...]) -> WrongRow:
    owner, *key = (str(value) for value in row[: len(_COLUMNS)])
    # PostgreSQL sums integers into a NUMERIC.
    sums = [int(str(value)) for value in row[len(_COLUMNS) :]]
    both = zip(SUMS, sums[: len(SUMS)], sums[len(SUMS) :], strict=True)
    differing = [(name, one, other) for name, one, other in both if one != other]
    return WrongRow(
        owner,
        "usage_months",
        tuple(key),
        {name: one for name, one, _ in differing},
        {name: other for name, _, other in differing},
    )
