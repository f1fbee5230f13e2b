"""How the database finds what it reads: an ordinary proof of a ledger of years must not read all its events.

By the plan, not by its time. SQLite's alone: PostgreSQL plans by what a table has in it, and a test's has nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from billing.archive.archiver import Archiver
from billing.books.books import Books as Reader
from billing.rollups import checkpoint_sql
from billing.rollups.event_sums import event_sums
from tests.billing.books.test_proof import days_of_use, use
from tests.billing.transparency.logged import sequencer

if TYPE_CHECKING:
    from tests.billing.conftest import Books

Statement = tuple[str, Any]
STATEMENTS = ("SELECT", "DELETE FROM usage_events", "INSERT INTO usage_days")
pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@contextmanager
def reading() -> Iterator[list[Statement]]:
    """The statements that read, add up or delete usage events, with their parameters."""
    found: list[Statement] = []

    def note(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        if statement.startswith(STATEMENTS) and "usage_events" in statement:
            found.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", note)


async def scans(books: Books, statements: list[Statement]) -> list[str]:
    """Steps of their plans that read the table of events from its first to its last."""
    steps = []
    for statement, parameters in statements:
        explaining = partial(_plan, statement=f"EXPLAIN QUERY PLAN {statement}", parameters=parameters)
        steps += await books.database.read(explaining)
    return [step for step in steps if step.startswith("SCAN usage_events")]


def _plan(connection: Any, *, statement: str, parameters: Any) -> list[str]:
    return [row[-1] for row in connection.exec_driver_sql(statement, parameters)]


@pytest.fixture
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_sql, "EVENTS_IN_ONE", 2)


async def test_an_ordinary_proof_never_scans_the_events(books: Books, short_stretches: None) -> None:
    await days_of_use(books, 8)
    reader = Reader(books.database)
    assert (await reader.reconcile(books.spool)).is_clean
    with reading() as statements:
        assert (await reader.reconcile(books.spool)).is_clean
    assert len(statements) > 5 and await scans(books, statements) == []
    # Nor where days here and there are not proven, as after usage that came late.
    proven = await books.database.read(checkpoint_sql.stretches)
    assert len(proven) > 3
    await books.database.write(
        partial(checkpoint_sql.forget, from_ids=[proven[0].from_id, proven[2].from_id])
    )
    with reading() as statements:
        await books.database.read(lambda c: c.execute(event_sums(c)).all())
    assert len(statements) == 1 and await scans(books, statements) == []


async def test_an_archive_reads_and_deletes_its_month_by_id(
    books: Books, short_stretches: None, tmp_path: Path
) -> None:
    caller = await books.new_caller()
    for day in range(40):
        await use(books, caller, datetime(2026, 9, 5, 12, tzinfo=UTC) + timedelta(days=day))
    await books.at(datetime(2027, 1, 20, tzinfo=UTC))
    archiver = Archiver(books.database, books.spool, tmp_path, actor="test")
    await sequencer(books.database).once()
    assert (await Reader(books.database).reconcile(books.spool)).is_clean
    with reading() as statements:
        assert await archiver.archive(3) == ["2026-09"]
    assert any(statement.startswith("DELETE") for statement, _ in statements)
    assert await scans(books, statements) == []


async def test_a_rebuild_adds_up_the_months_that_are_wrong_and_no_others(books: Books) -> None:
    caller, reader = await books.new_caller(), Reader(books.database)
    for month in (8, 9, 10):
        await use(books, caller, datetime(2026, month, 5, 12, tzinfo=UTC))
    wrong = "UPDATE usage_days SET prompt_tokens = 7, requests = 9 WHERE day = '2026-09-05'"
    await books.database.write(lambda c: c.exec_driver_sql(wrong))
    with reading() as statements:
        await reader.rebuild(actor="test", now=books.now)
    made = [(sql, parameters) for sql, parameters in statements if sql.startswith("INSERT")]
    assert len(made) == 1 and "2026-09-01 00:00:00.000000" in made[0][1]
    assert (await reader.reconcile(books.spool, full=True)).is_clean
