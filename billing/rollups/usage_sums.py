"""Usage as rows that can be added up further: sums of months and days, and events where a period cuts a day.

The sums are made anew here too: as they are stored, and as events and archived days say that they should be.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Select,
    Subquery,
    Table,
    and_,
    case,
    delete,
    false,
    func,
    insert,
    literal,
    or_,
    select,
    true,
    union_all,
)

from billing.rollups.archived import PeriodArchived, last_settled_at, not_archived
from billing.rollups.partitions import following
from billing.store.dates import calendar
from billing.store.rollup_tables import SUMS, archived_days, archived_months, usage_days, usage_months
from billing.store.schema import api_keys, projects, usage_events, workspaces

_e, _d = usage_events.c, archived_days.c
# The cost of its tokens, less what was written off.
CHARGED: ColumnElement[int] = _e.cost_nano_usd - _e.written_off_nano_usd


def charged_month(connection: Connection) -> ColumnElement[str]:
    """By the database's clock when it was charged. Events of older releases count to the month of their settlement."""
    return func.coalesce(_e.month, calendar(connection, _e.settled_at, "month"))


# Of a prompt that was compressed: what was not sent. Zero where no compression was asked for.
TOKENS_SAVED: ColumnElement[int] = func.coalesce(_e.original_tokens - _e.prompt_tokens, 0)
# Before what the compression cost. An event of which something was written off was charged all that there was room for,
# and would have been without compression, so it counts no saving.
SAVED: ColumnElement[int] = case(
    (or_(_e.written_off_nano_usd == 0, _e.saved_nano_usd < 0), _e.saved_nano_usd), else_=0
)


DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Days:
    """From one day to before another; None: that end is open."""

    since: date | None
    until: date | None

    @property
    def is_empty(self) -> bool:
        return self.since is not None and self.until is not None and self.since >= self.until


@dataclass(frozen=True, slots=True)
class Edge:
    """A part of a day."""

    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Parts:
    """Together they are the period, and no moment is in two of them. `months` begins and ends with a month."""

    months: Days | None
    days: tuple[Days, ...]
    edges: tuple[Edge, ...]


def parts_of(since: datetime | None, until: datetime | None, *, by_day: bool) -> Parts:
    """The parts of a period; `by_day`: whole months are read as days."""
    if since is not None and until is not None and since >= until:
        return Parts(None, (), ())
    first = None if since is None else _day_from(since)
    last = None if until is None else until.astimezone(UTC).date()
    if since is not None and until is not None and first is not None and last is not None and first > last:
        return Parts(None, (), (Edge(since, until),))
    edges = _edges(since, first, until, last)
    whole = Days(first, last)
    if by_day:
        return Parts(None, () if whole.is_empty else (whole,), edges)
    months, days = _months_of(whole)
    return Parts(months, days, edges)


def _edges(
    since: datetime | None, first: date | None, until: datetime | None, last: date | None
) -> tuple[Edge, ...]:
    edges = []
    if since is not None and first is not None:
        edges.append(Edge(since, _midnight(first)))
    if until is not None and last is not None:
        edges.append(Edge(_midnight(last), until))
    return tuple(edge for edge in edges if edge.since < edge.until)


def _months_of(whole: Days) -> tuple[Days | None, tuple[Days, ...]]:
    first = None if whole.since is None else _month_from(whole.since)
    last = None if whole.until is None else whole.until.replace(day=1)
    if first is not None and last is not None and first >= last:
        return None, () if whole.is_empty else (whole,)
    around = []
    if first is not None:
        around.append(Days(whole.since, first))
    if last is not None:
        around.append(Days(last, whole.until))
    return Days(first, last), tuple(days for days in around if not days.is_empty)


def _day_from(moment: datetime) -> date:
    """The first day that begins then or later."""
    day = moment.astimezone(UTC).date()
    return day if _midnight(day) == moment else day + DAY


def _month_from(day: date) -> date:
    """The first month that begins then or later, by its first day."""
    return day if day.day == 1 else (day.replace(day=1) + 31 * DAY).replace(day=1)


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time.min, tzinfo=UTC)


OF_EVENT: dict[str, ColumnElement[int]] = {
    "requests": literal(1),
    "prompt_tokens": _e.prompt_tokens,
    "completion_tokens": _e.completion_tokens,
    "cached_tokens": _e.cached_tokens,
    "cost_nano_usd": CHARGED,
    "written_off_nano_usd": _e.written_off_nano_usd,
    "tokens_saved": TOKENS_SAVED,
    "saved_nano_usd": SAVED,
    "compression_nano_usd": _e.compression_nano_usd,
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which usage; None: all. By settlement from `since` to before `until`, or by the month that was charged."""

    workspace_id: str | None = None
    project_id: str | None = None
    key_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    charged_in: str | None = None


def summed(connection: Connection, by: Sequence[str], wanted: Wanted) -> Subquery:
    """Rows of `SUMS` with the columns `by`, of which there may be several with the same values: `workspace_id`,
    `project_id`, `key_id`, `model_id`, `route`, `day`, `month`. Raises `PeriodArchived` for a part of an archived
    day."""
    parts = parts_of(wanted.since, wanted.until, by_day="day" in by)
    archive = last_settled_at(connection) if parts.edges else None
    if archive is not None and any(edge.since <= archive for edge in parts.edges):
        raise PeriodArchived("usage of a part of a day", archive)
    pieces = [*_rolled_up(parts, by, wanted), *_from_events(connection, parts, by, wanted)]
    if not pieces:
        pieces = [_of_table(usage_months, by, wanted).where(false())]
    return union_all(*pieces).subquery("summed")


def _rolled_up(parts: Parts, by: Sequence[str], wanted: Wanted) -> list[Select[Any]]:
    pieces = [_in_days(parts.months, usage_months, "settled_month", 7, by, wanted)] if parts.months else []
    return pieces + [_in_days(days, usage_days, "day", 10, by, wanted) for days in parts.days]


def _in_days(
    days: Days, table: Table, span: str, chars: int, by: Sequence[str], wanted: Wanted
) -> Select[Any]:
    piece = _of_table(table, by, wanted)
    if days.since is not None:
        piece = piece.where(table.c[span] >= days.since.isoformat()[:chars])
    if days.until is not None:
        piece = piece.where(table.c[span] < days.until.isoformat()[:chars])
    return piece


def _of_table(table: Table, by: Sequence[str], wanted: Wanted) -> Select[Any]:
    groups = [table.c[name] for name in by]
    sums = [func.sum(table.c[name]).label(name) for name in SUMS]
    piece = _narrowed(select(*groups, *sums), table, wanted).group_by(*groups)
    return piece if wanted.charged_in is None else piece.where(table.c.month == wanted.charged_in)


def _from_events(
    connection: Connection, parts: Parts, by: Sequence[str], wanted: Wanted
) -> list[Select[Any]]:
    columns = event_columns(connection, by)
    sums = [OF_EVENT[name].label(name) for name in SUMS]
    pieces = []
    for edge in parts.edges:
        piece = _narrowed(select(*columns, *sums), usage_events, wanted)
        piece = piece.where(_e.settled_at >= edge.since, _e.settled_at < edge.until)
        if wanted.charged_in is not None:
            piece = piece.where(charged_month(connection) == wanted.charged_in)
        pieces.append(piece)
    return pieces


def event_columns(connection: Connection, by: Sequence[str]) -> list[ColumnElement[Any]]:
    """Of events, as `summed` has them."""
    names: dict[str, ColumnElement[Any]] = {
        "route": func.coalesce(_e.route, ""),
        "day": calendar(connection, _e.settled_at, "day"),
        "month": charged_month(connection),
    }
    return [(names[name] if name in names else _e[name]).label(name) for name in by]


def _narrowed(piece: Select[Any], table: Table, wanted: Wanted) -> Select[Any]:
    for name in ("workspace_id", "project_id", "key_id"):
        value, column = getattr(wanted, name), table.c[name]
        assert isinstance(column, Column)
        if value is not None:
            piece = piece.where(column == value)
    return piece if wanted.workspace_id is not None else piece.where(_in_its_workspace(table, wanted))


def _in_its_workspace(table: Table, wanted: Wanted) -> ColumnElement[bool]:
    """True of all that is wanted. Indexes begin with the workspace: without one the tables are read whole."""
    column, owner = table.c.workspace_id, select(projects.c.workspace_id)
    if wanted.project_id is not None:
        return column == owner.where(projects.c.id == wanted.project_id).scalar_subquery()
    if wanted.key_id is not None:
        of_key = owner.join(api_keys, api_keys.c.project_id == projects.c.id)
        return column == of_key.where(api_keys.c.id == wanted.key_id).scalar_subquery()
    # Of events a part of a day is wanted, which is found workspace by workspace.
    return column.in_(select(workspaces.c.id)) if table is usage_events else true()


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
