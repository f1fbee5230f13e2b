"""Usage as rows that can be added up further: sums of months and days, and events where a period cuts a day."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Select,
    Subquery,
    Table,
    case,
    false,
    func,
    literal,
    or_,
    select,
    true,
    union_all,
)

from billing.errors import BillingError
from billing.rollups.archived import PeriodArchived, last_settled_at
from billing.store.dates import calendar
from billing.store.rollup_tables import (
    SUMS,
    archived_days,
    label_days,
    label_months,
    usage_days,
    usage_months,
)
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


# Sums by one of these are of events that name it: once for each of their tags.
LABELS = ("person", "tag")
LABELLED_BY = ("workspace_id", "project_id", "day", "month")
_TAGS = {
    # Tags have no quotes and no backslashes.
    "sqlite": func.json_each('["' + func.replace(_e.tags, ",", '","') + '"]').table_valued("value"),
    "postgresql": func.unnest(func.string_to_array(_e.tags, ",")).table_valued("value").render_derived(),
}


class UnknownSum(BillingError, ValueError):
    """There are no sums by what was asked for."""


def label_of(by: Sequence[str]) -> str | None:
    """The one of `LABELS` that is in `by`."""
    return next((name for name in by if name in LABELS), None)


def _require_sums(by: Sequence[str], wanted: Wanted) -> None:
    kind = label_of(by)
    others = [name for name in by if name not in (kind, *LABELLED_BY)]
    others += ["key_id"] if wanted.key_id is not None else []
    if kind is not None and others:
        named = ", ".join(sorted({name.removesuffix("_id") for name in others}))
        raise UnknownSum(
            f"usage by {kind} is added up by workspace, project, day and month besides, not by {named}"
        )


def labelled(connection: Connection, kind: str) -> tuple[ColumnElement[str], FromClause]:
    """The person or a tag of events, and the events, with a row for each tag. NULL: they name none."""
    if kind == "person":
        return _e.person, usage_events
    tags = _TAGS[connection.dialect.name]
    return tags.c.value, usage_events.join(tags, true())


def summed(connection: Connection, by: Sequence[str], wanted: Wanted) -> Subquery:
    """Rows of `SUMS` with the columns `by`, of which there may be several with the same values: `workspace_id`,
    `project_id`, `key_id`, `model_id`, `route`, `day`, `month`, or one of `LABELS` with `LABELLED_BY`. Raises
    `UnknownSum`, and `PeriodArchived` for a part of an archived day."""
    _require_sums(by, wanted)
    parts = parts_of(wanted.since, wanted.until, by_day="day" in by)
    archive = last_settled_at(connection) if parts.edges else None
    if archive is not None and any(edge.since <= archive for edge in parts.edges):
        raise PeriodArchived("usage of a part of a day", archive)
    pieces = [*_rolled_up(parts, by, wanted), *_from_events(connection, parts, by, wanted)]
    if not pieces:
        pieces = [_of_table(_tables(by)[0], by, wanted).where(false())]
    return union_all(*pieces).subquery("summed")


def _tables(by: Sequence[str]) -> tuple[Table, Table]:
    return (usage_months, usage_days) if label_of(by) is None else (label_months, label_days)


def _rolled_up(parts: Parts, by: Sequence[str], wanted: Wanted) -> list[Select[Any]]:
    of_months, of_days = _tables(by)
    pieces = [_in_days(parts.months, of_months, "settled_month", 7, by, wanted)] if parts.months else []
    return pieces + [_in_days(days, of_days, "day", 10, by, wanted) for days in parts.days]


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
    groups = [table.c.label.label(name) if name in LABELS else table.c[name] for name in by]
    if (kind := label_of(by)) is None:
        sums = [func.sum(table.c[name]).label(name) for name in SUMS]
        piece = _narrowed(select(*groups, *sums), table, wanted).group_by(*groups)
    else:
        # Not added up twice: there are nearly as many labels as rows.
        own = select(*groups, *(table.c[name] for name in SUMS)).where(table.c.kind == kind)
        piece = _narrowed(own, table, wanted)
    return piece if wanted.charged_in is None else piece.where(table.c.month == wanted.charged_in)


def _from_events(
    connection: Connection, parts: Parts, by: Sequence[str], wanted: Wanted
) -> list[Select[Any]]:
    columns = event_columns(connection, by)
    sums = [OF_EVENT[name].label(name) for name in SUMS]
    pieces = []
    for edge in parts.edges:
        piece = _narrowed(select(*columns, *sums), usage_events, wanted)
        if (kind := label_of(by)) is not None:
            label, source = labelled(connection, kind)
            piece = piece.select_from(source).where(label.is_not(None))
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
        "tag": _TAGS[connection.dialect.name].c.value,
    }
    return [(names[name] if name in names else _e[name]).label(name) for name in by]


def _narrowed(piece: Select[Any], table: Table, wanted: Wanted) -> Select[Any]:
    for name in ("workspace_id", "project_id", "key_id"):
        value = getattr(wanted, name)
        if value is not None:
            piece = piece.where(table.c[name] == value)
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
