"""The tables of a spool, and the statements that make and fill them."""

import time

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    case,
    func,
    select,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateTable

from billing.usage import UsageEvent, event_to_json

_metadata = MetaData()
spooled_events = Table(
    "spooled_events",
    _metadata,
    Column("position", Integer, primary_key=True),
    Column("event_id", String(32), nullable=False, unique=True),
    Column("event", Text, nullable=False),
    # Set when the ledger refused the event for good. Such a row waits for an operator.
    Column("refusal", Text),
    sqlite_autoincrement=True,
)
_checks = Table(
    "checks",
    _metadata,
    Column("id", Integer, primary_key=True),
    Column("checked_at", Float, nullable=False),
)
# As text: SQLAlchemy would look each up in the catalog first, at ten times what an event costs.
_MAKE = tuple(
    str(CreateTable(table, if_not_exists=True).compile(dialect=sqlite.dialect()))
    for table in (spooled_events, _checks)
)
_IS_MADE = f"SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '{spooled_events.name}'"
_COUNT = select(func.count()).select_from(spooled_events)
# Those that the ledger refused, and those that it did not.
OLDEST = {
    True: select(spooled_events)
    .where(spooled_events.c.refusal.is_not(None))
    .order_by(spooled_events.c.position),
    False: select(spooled_events)
    .where(spooled_events.c.refusal.is_(None))
    .order_by(spooled_events.c.position),
}
# The other event that an event names, where it does; what was set aside need not be JSON.
NAMED: ColumnElement[str | None] = case(
    (func.json_valid(spooled_events.c.event) == 1, func.json_extract(spooled_events.c.event, "$.paired_with"))
)


def is_made(connection: Connection) -> bool:
    """False in a file that was opened on a full disk: it stays empty until an event can be written."""
    return connection.exec_driver_sql(_IS_MADE).first() is not None


def make(connection: Connection) -> None:
    for statement in _MAKE:
        connection.exec_driver_sql(statement)


def append(connection: Connection, event: UsageEvent) -> int:
    """How many rows it made: none for an event that is here already."""
    make(connection)
    row = {"event_id": event.event_id, "event": event_to_json(event)}
    return connection.execute(sqlite.insert(spooled_events).values(row).on_conflict_do_nothing()).rowcount


def probe(connection: Connection) -> int:
    """Writes a row, since only a write tells whether writes succeed; returns how many events there are."""
    make(connection)
    checked = {"id": 1, "checked_at": time.time()}
    statement = sqlite.insert(_checks).values(checked)
    connection.execute(statement.on_conflict_do_update(index_elements=["id"], set_=checked))
    return connection.execute(_COUNT).scalar_one()
