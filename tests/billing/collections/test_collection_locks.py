"""On PostgreSQL, where transactions run side by side: a change of a workspace's collections waits for the one before.

The first one is stopped before its commit until the second is seen to wait for it, so the order is the same every time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.util import await_only

from billing.collections import collection_sql
from billing.collections.collection import NANO_PER_CENT
from billing.collections.collector import Collector
from billing.errors import IllegalMove
from billing.store.database import open_database

if TYPE_CHECKING:
    from tests.billing.conftest import Books

T = TypeVar("T")
pytestmark = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
_WAITING = text(
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


async def one_after_the_other(
    books: Books, first: Callable[[Connection], T], second: Callable[[Connection], T]
) -> tuple[T, T | BaseException]:
    """`first` does its work and does not commit until `second` waits for it, or has ended without waiting."""
    done, commit = asyncio.Event(), asyncio.Event()

    def stopped(connection: Connection) -> T:
        result = first(connection)
        done.set()
        await_only(commit.wait())
        return result

    other = open_database(books.url)
    leading = asyncio.create_task(books.database.write(stopped))
    await done.wait()
    following = asyncio.create_task(other.write(second))
    async with asyncio.timeout(60):
        while not following.done() and not await books.database.read(  # noqa: ASYNC110 - nothing signals it
            lambda c: c.execute(_WAITING).scalar_one()
        ):
            await asyncio.sleep(0.005)
    commit.set()
    results = await asyncio.gather(leading, following, return_exceptions=True)
    await other.close()
    assert not isinstance(results[0], BaseException)
    return results[0], results[1]


async def owing(books: Books, cents: int) -> str:
    caller = await books.new_caller()
    await books.settle(await books.hold(caller, cents * NANO_PER_CENT), cents * NANO_PER_CENT)
    return caller.workspace_id


async def test_two_servers_that_cut_one_balance_make_one_collection(books: Books) -> None:
    cut = partial(
        collection_sql.cut,
        workspace_id=await owing(books, 9),
        threshold_cents=5,
        actor="test",
        now=books.now,
    )
    made, nothing = await one_after_the_other(books, cut, cut)
    assert made is not None and made.cents == 9
    assert nothing is None
    assert await books.differences() == []


async def test_two_operators_that_close_one_collection_close_it_once(books: Books) -> None:
    await owing(books, 9)
    (made,) = await Collector(books.database, actor="test").cut_due(threshold_cents=5, now=books.now)
    move = partial(
        collection_sql.move, collection_id=made.id, actor="test", now=books.now + timedelta(hours=1)
    )
    void, paid = await one_after_the_other(books, partial(move, wanted="void"), partial(move, wanted="paid"))
    assert not isinstance(void, BaseException) and void.state == "void"
    assert isinstance(paid, IllegalMove)
    assert await books.differences() == []
