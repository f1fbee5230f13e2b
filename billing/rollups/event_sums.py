"""Sums and digests of events: as they were proven, and as they are."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
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
    usage_days,
    usage_months,
)
from billing.store.schema import usage_events
from billing.store.stored_types import UtcDateTime

_e, _s, _d = usage_events.c, checkpoint_sums.c, archived_days.c
Sums = dict[tuple[str, str], Sum]


@dataclass(frozen=True, slots=True)
class ReadSums:
    """What the events of a stretch add up to, as they were read at that version of it."""

    version: int
    sums: list[Sum]


NOTHING_READ: Mapping[str, ReadSums] = {}


@dataclass(frozen=True, slots=True)
class WrongSum:
    """A sum that is not what the events add up to. `table` is `usage_days`, `usage_months` or `checkpoint_sums`."""

    workspace_id: str
    table: str
    month: str
    stored: Sum
    due: Sum


def event_sums(connection: Connection, read: Mapping[str, ReadSums] = NOTHING_READ) -> Sums:
    """By workspace and by the month that was charged, archived ones included. In one snapshot with whatever they are
    compared with.

    `read`, by where stretches begin, counts instead of what was kept when they were proven.
    """
    known = checkpoint_sql.stretches(connection, event_checkpoints.c.from_id.in_(read))
    versions = {one.from_id: one.version for one in known if one.digest is not None}
    instead = {key: one for key, one in read.items() if versions.get(key) == one.version}
    proven = (
        select(
            _s.workspace_id,
            _s.month,
            *map(func.sum, (_s.events, _s.charged_nano_usd, _s.written_off_nano_usd)),
        )
        .join(event_checkpoints, event_checkpoints.c.from_id == _s.from_id)
        .where(event_checkpoints.c.digest.is_not(None), event_checkpoints.c.from_id.not_in(instead))
        .group_by(_s.workspace_id, _s.month)
    )
    in_files = (
        select(
            _d.workspace_id,
            _d.month,
            *map(func.sum, (_d.requests, _d.cost_nano_usd, _d.written_off_nano_usd)),
        )
        .join(archived_months, archived_months.c.month == _d.archived_month)
        .where(archived_months.c.state != "sealed")
        .group_by(_d.workspace_id, _d.month)
    )
    open_events = sums_of(connection, checkpoint_sql.not_proven(connection))
    in_their_place = [one for each in instead.values() for one in each.sums]
    return joined([*_read(connection, in_files), *_read(connection, proven), *open_events, *in_their_place])


def sums_of(connection: Connection, where: ColumnElement[bool]) -> list[Sum]:
    """Sums of those events."""
    month = charged_month(connection).label("month")
    rows = select(
        # Never null: by the bare column, SQLite would read every event in the order of its index to group a few.
        func.coalesce(_e.workspace_id, "").label("workspace_id"),
        month,
        CHARGED.label("charged"),
        _e.written_off_nano_usd.label("written_off"),
    ).where(where)
    one = rows.subquery().c
    summed = select(
        one.workspace_id, one.month, func.count(), func.sum(one.charged), func.sum(one.written_off)
    )
    return _read(connection, summed.group_by(one.workspace_id, one.month))


def wrong_sums(connection: Connection, due: Sums) -> list[WrongSum]:
    """Differences of the sums that usage is read from."""
    found = []
    for table in (usage_days, usage_months):
        sums = (func.sum(table.c[name]) for name in ("requests", "cost_nano_usd", "written_off_nano_usd"))
        summed = select(table.c.workspace_id, table.c.month, *sums)
        stored = joined(_read(connection, summed.group_by(table.c.workspace_id, table.c.month)))
        found += differing(table.name, stored, due)
    return found


def differing(table: str, stored: Sums, due: Sums) -> list[WrongSum]:
    found = []
    for key in sorted(stored.keys() | due.keys()):
        nothing = Sum(*key, 0, 0, 0)
        one, other = stored.get(key, nothing), due.get(key, nothing)
        if one != other:
            found.append(WrongSum(key[0], table, key[1], one, other))
    return found


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


def _read(connection: Connection, statement: Select[Any]) -> list[Sum]:
    # PostgreSQL sums integers into a NUMERIC.
    return [Sum(row[0], row[1], *map(int, row[2:])) for row in connection.execute(statement)]


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
