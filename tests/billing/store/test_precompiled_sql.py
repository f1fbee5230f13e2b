"""Statements that are compiled once say and do what SQLAlchemy's own execution of them does."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import Connection, bindparam, create_engine, delete, insert, select, update
from sqlalchemy.exc import IntegrityError, StatementError

from billing.store.schema import holds, metadata
from billing.store.statements import PrecompiledStatement

NOON = datetime(2026, 11, 20, 12, 0, 0, 5, tzinfo=timezone(timedelta(hours=2)))
HOLD = {"event_id": "e", "workspace_id": "w", "amount_nano_usd": 7, "created_at": NOON} | {
    "owner": "o",
    "key_id": None,
    "expires_at": 1.5,
    "budgets": None,
}
_ADD = PrecompiledStatement(
    update(holds)
    .where(holds.c.event_id == bindparam("event"), holds.c.amount_nano_usd > 0)
    .values(amount_nano_usd=holds.c.amount_nano_usd + bindparam("more"))
)


@pytest.fixture
def connection() -> Iterator[Connection]:
    engine = create_engine("sqlite://")
    metadata.create_all(engine)
    with engine.begin() as connection:
        yield connection
    engine.dispose()


def stored(connection: Connection) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in connection.exec_driver_sql("SELECT * FROM holds ORDER BY event_id")]


def test_what_is_stored_is_what_sqlalchemy_stores(connection: Connection) -> None:
    PrecompiledStatement(insert(holds)).count(connection, HOLD)
    connection.execute(insert(holds), {**HOLD, "event_id": "f"})
    (ours, theirs) = stored(connection)
    assert ours[1:] == theirs[1:]
    assert connection.execute(select(holds.c.created_at)).scalars().first() == NOON


def test_names_constants_and_counts_are_those_of_the_statement(connection: Connection) -> None:
    PrecompiledStatement(insert(holds)).count(connection, HOLD)
    assert _ADD.count(connection, {"more": 5, "event": "e"}) == 1
    assert _ADD.count(connection, {"more": 5, "event": "none"}) == 0
    assert stored(connection)[0][2] == 12


def test_the_returned_rows_are_those_that_were_deleted(connection: Connection) -> None:
    taking = PrecompiledStatement(
        delete(holds).where(holds.c.event_id == bindparam("event")).returning(holds.c.workspace_id)
    )
    PrecompiledStatement(insert(holds)).count(connection, HOLD)
    assert [tuple(row) for row in taking.returned(connection, {"event": "e"})] == [("w",)]
    assert not taking.returned(connection, {"event": "e"})


def test_a_refused_row_and_a_value_that_cannot_be_bound_raise_sqlalchemys_errors(
    connection: Connection,
) -> None:
    statement = PrecompiledStatement(insert(holds))
    statement.count(connection, HOLD)
    with pytest.raises(IntegrityError):
        statement.count(connection, HOLD)
    with pytest.raises(StatementError, match="time zone"):
        statement.count(connection, {**HOLD, "created_at": NOON.replace(tzinfo=None)})
    with pytest.raises(StatementError, match="amount"):
        statement.count(
            connection, {name: value for name, value in HOLD.items() if name != "amount_nano_usd"}
        )
