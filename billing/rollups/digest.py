"""Events as a text that says all of them, the same on both databases, to take a digest of."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Integer,
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

from billing.rollups.checkpoint_sql import within
from billing.store.schema import usage_events
from billing.store.stored_types import UtcDateTime

_e = usage_events.c
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
