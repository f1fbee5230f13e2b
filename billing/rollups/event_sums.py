"""Sums and digests of events: as they were proven, and as they are."""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    CompoundSelect,
    Connection,
    Integer,
    Select,
    String,
    Text,
    case,
    cast,
    func,
    literal,
    select,
    type_coerce,
    union_all,
)
from sqlalchemy.dialects.postgresql import aggregate_order_by

from billing.rollups import checkpoint_sql
from billing.rollups.checkpoint_sql import Sum, within
from billing.rollups.usage_sums import CHARGED, charged_month
from billing.store.rollup_tables import (
    archived_days,
    archived_months,
    checkpoint_sums,
    event_checkpoints,
)
from billing.store.schema import usage_events
from billing.store.stored_types import UtcDateTime

_e, _s, _d = usage_events.c, checkpoint_sums.c, archived_days.c
Sums = dict[tuple[str, str], Sum]


def event_sums(connection: Connection, distrusted: Collection[str] = ()) -> CompoundSelect[Any]:
    """Rows of `workspace_id`, `month` that was charged, `events`, `cost_nano_usd` and `written_off_nano_usd`, several
    of one workspace and month, archived ones included. In one snapshot with whatever they are compared with.

    Where stretches begin that are `distrusted`, their events are read instead of what was kept of them.
    """
    names = ("events", "cost_nano_usd", "written_off_nano_usd")

    def summed(workspace_id: Any, month: Any, *amounts: Any) -> Select[Any]:
        sums = (func.sum(one).label(name) for name, one in zip(names, amounts, strict=True))
        return select(workspace_id, month, *sums).group_by(workspace_id, month)

    kept = event_checkpoints.c
    proven = (
        summed(_s.workspace_id, _s.month, _s.events, _s.charged_nano_usd, _s.written_off_nano_usd)
        .join(event_checkpoints, kept.from_id == _s.from_id)
        .where(kept.digest.is_not(None), kept.from_id.not_in(distrusted))
    )
    in_files = (
        summed(_d.workspace_id, _d.month, _d.requests, _d.cost_nano_usd, _d.written_off_nano_usd)
        .join(archived_months, archived_months.c.month == _d.archived_month)
        .where(archived_months.c.state != "sealed")
    )
    open_events = _added_up(connection, checkpoint_sql.not_proven(connection, distrusted))
    return union_all(in_files, proven, open_events)


def sums_of(connection: Connection, where: ColumnElement[bool]) -> list[Sum]:
    """Sums of those events."""
    # PostgreSQL sums integers into a NUMERIC.
    rows = connection.execute(_added_up(connection, where))
    return [Sum(row[0], row[1], *map(int, row[2:])) for row in rows]


def _added_up(connection: Connection, where: ColumnElement[bool]) -> Select[Any]:
    rows = select(
        # Never null: by the bare column, SQLite would read every event in the order of its index to group a few.
        func.coalesce(_e.workspace_id, "").label("workspace_id"),
        charged_month(connection).label("month"),
        CHARGED.label("charged"),
        _e.written_off_nano_usd.label("written_off"),
    ).where(where)
    one = rows.subquery().c
    return select(
        one.workspace_id, one.month, func.count(), func.sum(one.charged), func.sum(one.written_off)
    ).group_by(one.workspace_id, one.month)


def joined(sums: Iterable[Sum]) -> Sums:
    """One for each workspace and month."""
    found: Sums = {}
    for one in sums:
        key = (one.workspace_id, one.month)
        known = found.get(key, Sum(*key, 0, 0, 0))
        found[key] = Sum(
            *key,
            known.events + one.events,
            known.charged_nano_usd + one.charged_nano_usd,
            known.written_off_nano_usd + one.written_off_nano_usd,
        )
    return found


# What a digest is taken of, for ever: a column that is added later is no part of it.
DIGESTED = (
    "event_id", "request_id", "workspace_id", "project_id", "key_id", "model_id", "pricing_version",
    "prompt_tokens", "completion_tokens", "cached_tokens", "subtotal_nano_usd", "minimum_applied",
    "cost_nano_usd", "outcome", "stream", "created_at", "settled_at", "receipt", "offline",
    "written_off_nano_usd", "month", "original_tokens", "original_cached_tokens", "saved_nano_usd",
    "compression_nano_usd", "compression", "conversation", "paired_with", "price_ppm", "route",
)  # fmt: skip
# What callers may write themselves goes with its length, so that no text of one column looks like another's.
FREE = frozenset({"request_id", "model_id", "receipt"})
NULL = "\\N"


def text_of_events(connection: Connection, from_id: str, until_id: str | None) -> str:
    """The events of these ids, in their order: one a line."""
    line = _line(connection).label("line")
    events = select(line, _e.event_id).where(within(from_id, until_id))
    rows: Any = events.order_by(_e.event_id).subquery().c
    if connection.dialect.name == "sqlite":
        # It joins the rows in the order in which they come.
        joined = func.group_concat(rows.line, "\n")
    else:
        joined = func.string_agg(rows.line, aggregate_order_by(literal("\n"), rows.event_id))
    return connection.execute(select(joined)).scalar() or ""


def line_of(event: Mapping[str, Any]) -> str:
    """The line of one event, from its columns' values: what the databases make of its row."""
    return "|".join(_said(name, event[name]) for name in DIGESTED)


def _said(name: str, value: Any) -> str:
    if value is None:
        return NULL
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    if isinstance(value, bool):
        return str(int(value))
    return f"{len(value)}:{value}" if name in FREE else str(value)


def _line(connection: Connection) -> ColumnElement[str]:
    parts = [_part(connection, _e[name]) for name in DIGESTED]
    line: Any = parts[0]
    for part in parts[1:]:
        line = line.op("||")(literal("|")).op("||")(part)
    return type_coerce(line, Text)


def _part(connection: Connection, column: Column[Any]) -> ColumnElement[str]:
    return func.coalesce(_text(connection, column), literal(NULL))


def _text(connection: Connection, column: Column[Any]) -> ColumnElement[Any]:
    is_sqlite = connection.dialect.name == "sqlite"
    if column.name in FREE:
        length = cast(func.length(column), Text)
        return length.op("||")(literal(":")).op("||")(type_coerce(column, Text))
    if isinstance(column.type, UtcDateTime):
        # As SQLite has it.
        return (
            type_coerce(column, String)
            if is_sqlite
            else func.to_char(func.timezone("UTC", column), "YYYY-MM-DD HH24:MI:SS.US")
        )
    if isinstance(column.type, Boolean):
        return cast(case((column, 1), else_=0), Text)
    if isinstance(column.type, Integer):
        return cast(column, Text)
    return type_coerce(column, Text)
