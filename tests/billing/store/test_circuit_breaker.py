"""`billing.store.database`: what one workspace's row does is no outage of the ledger."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from billing.errors import AllowanceSpent
from billing.ledger.ledger import Ledger
from billing.store.database import FakeOutageDatabase, RowWork, open_database

if TYPE_CHECKING:
    from tests.billing.conftest import Books


class FakeLockedRow(FakeOutageDatabase):
    """A fake of a ledger in which one workspace's row is kept locked: writes to it time out."""

    row = ""
    refused = 0

    async def write(self, work: Any, *, durable: bool = True) -> Any:
        if isinstance(work, RowWork) and work.row == self.row:
            self.refused += 1
            raise self.timeout()
        return await super().write(work, durable=durable)

    @staticmethod
    def timeout() -> Exception:
        from billing.errors import LedgerUnavailable

        return LedgerUnavailable("the write was not started")


async def test_another_workspaces_locked_row_costs_nobody_else_the_ledger(books: Books) -> None:
    database = FakeLockedRow(books.database)
    books.ledger = Ledger(database, books.spool, offline_allowance_nano_usd=1000)
    locked, other = await books.new_caller(), await books.new_caller()
    database.row = locked.workspace_id
    for _ in range(5):
        with pytest.raises(AllowanceSpent):
            await books.hold(locked, 2000)
        # Far more than the allowance: only the ledger can grant it.
        assert (await books.hold(other, 50_000)).kind == "held"
    assert database.refused == 1, "the locked row is left alone for a moment"
    assert (await books.hold(locked, 500)).kind == "offline"


async def test_a_row_that_is_free_again_is_asked_again(books: Books) -> None:
    database = FakeLockedRow(books.database)
    books.ledger = Ledger(database, books.spool, offline_allowance_nano_usd=1000)
    caller = await books.new_caller()
    database.row = caller.workspace_id
    assert (await books.hold(caller, 10)).kind == "offline"
    database.row = ""
    async with asyncio.timeout(60):
        while (await books.hold(caller, 10)).kind != "held":  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0.05)


async def test_an_outage_is_everybodys(books: Books) -> None:
    database = FakeOutageDatabase(books.database)
    books.ledger = Ledger(database, books.spool, offline_allowance_nano_usd=1000)
    one, two = await books.new_caller(), await books.new_caller()
    database.is_down = True
    assert (await books.hold(one, 10)).kind == "offline"
    database.is_down = False
    # It is not asked again at once, by nobody.
    assert (await books.hold(two, 10)).kind == "offline"


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_a_row_that_is_really_locked_is_no_outage(books: Books) -> None:
    import asyncpg

    impatient = open_database(books.url, timeout_s=3.0)
    books.ledger = Ledger(impatient, books.spool, offline_allowance_nano_usd=1000)
    locked, other = await books.new_caller(), await books.new_caller()
    connection = await asyncpg.connect(books.url.replace("+asyncpg", ""))
    async with connection.transaction():
        await connection.execute("SELECT * FROM workspaces WHERE id = $1 FOR UPDATE", locked.workspace_id)
        with pytest.raises(AllowanceSpent):
            await books.hold(locked, 2000)
        assert (await books.hold(other, 50_000)).kind == "held"
    await connection.close()
    await books.ledger.close()
    await impatient.close()
