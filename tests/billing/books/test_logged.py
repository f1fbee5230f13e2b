"""Reconciling the transparency log: it has every event and adjustment once, and each change of either is named."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Connection, text

from billing.adjustments.adjustments import Adjustments
from billing.books.books import Books as Reader
from billing.books.logged import wrong_leaves
from billing.transparency import log_sql
from tests.billing.transparency.logged import AT, add_events, sequencer

if TYPE_CHECKING:
    from tests.billing.conftest import Books


@pytest.fixture
async def logged(books: Books) -> Books:
    """Three hundred events and an adjustment are leaves; two events wait."""
    caller = await books.new_caller()
    for number in range(3):
        await add_events(books, caller, 100, at=AT + timedelta(hours=number))
    await Adjustments(books.database, actor="test").credit(
        caller.workspace_id, nano_usd=7, reason="sorry", idempotency_key="k"
    )
    await sequencer(books.database).once()
    await add_events(books, caller, 2)
    return books


async def wrong(books: Books, *, full: bool) -> tuple[str, ...]:
    return (await Reader(books.database).reconcile(books.spool, full=full)).wrong_log


async def test_a_log_that_is_whole_has_no_difference(logged: Books) -> None:
    assert await wrong(logged, full=False) == () == await wrong(logged, full=True)
    await sequencer(logged.database).once()
    assert await wrong(logged, full=True) == ()


async def test_a_ledger_without_events_has_none(books: Books) -> None:
    assert await wrong(books, full=True) == ()


@pytest.mark.parametrize(
    "statements",
    [
        ["DELETE FROM log_pending"],
        ["INSERT INTO log_pending (id) VALUES ('0ghost')"],
        ["UPDATE log_head SET size = size - 1"],
        ["UPDATE log_head SET note = ''", "UPDATE log_head SET size = size + 1"],
        ["UPDATE log_head SET note = replace(note, '301', '300')"],
        ["DELETE FROM log_bundles WHERE number = 1"],
        ["DELETE FROM log_tiles"],
    ],
    ids=[
        "taken from what waits",
        "a ghost waits",
        "shrunk",
        "grown",
        "another checkpoint",
        "no bundle",
        "no tiles",
    ],
)
async def test_a_glance_sees_what_is_wrong_with_numbers_and_the_edge(
    logged: Books, statements: list[str]
) -> None:
    await changed(logged, *statements)
    assert len(await wrong(logged, full=False)) >= 1


async def test_what_else_was_changed_is_found_by_reading_everything(logged: Books) -> None:
    """In the first bundle, which the edge of the tree does not need."""

    def swap(connection: Connection) -> None:
        entries = log_sql.bundle(connection, 0, 256)
        forged = entries[32:64] + entries[:32] + entries[64:]
        connection.execute(
            text("UPDATE log_bundles SET entries = :forged WHERE number = 0"), {"forged": forged}
        )

    assert await wrong(logged, full=False) == ()
    await logged.database.write(swap)
    assert await wrong_leaves(logged.database) == ["tile 0 of level 1 is not over the entries below it"]


async def test_a_row_that_was_changed_is_named(logged: Books) -> None:
    await changed(logged, "UPDATE usage_events SET cost_nano_usd = 2 WHERE request_id = 'r77'", anything=True)
    found = await wrong_leaves(logged.database)
    assert len(found) == 3 and all(one.endswith("is not in it as it is in the ledger") for one in found)


async def test_a_leaf_that_waits_again_is_named(logged: Books) -> None:
    """It would be two leaves."""
    await changed(logged, "INSERT INTO log_pending (id) SELECT id FROM adjustments")
    (found,) = await wrong_leaves(logged.database)
    assert found.startswith("adj_") and found.endswith("is in it, and waits for it too")
    assert len(await wrong(logged, full=False)) == 1


async def test_a_row_that_was_deleted_is_missed(logged: Books) -> None:
    await changed(logged, "DELETE FROM usage_events WHERE request_id = 'r77'", anything=True)
    assert any("and the ledger has" in one for one in await wrong(logged, full=False))


async def changed(books: Books, *statements: str, anything: bool = False) -> None:
    """`anything`: also what the database's triggers refuse."""

    def change(connection: Connection) -> None:
        if anything and connection.dialect.name == "postgresql":
            connection.execute(text("SET LOCAL session_replication_role = replica"))
        for trigger in ("update", "delete") if anything and connection.dialect.name == "sqlite" else ():
            connection.execute(text(f"DROP TRIGGER usage_events_no_{trigger}"))
        for statement in statements:
            connection.execute(text(statement))

    await books.database.write(change)
