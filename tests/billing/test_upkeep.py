"""`billing.upkeep`: what was spooled is replayed before any hold is closed, and a failure does not end it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from billing.fake_database import FakeOutageDatabase
from billing.ledger import Ledger
from billing.upkeep import keep_up, keep_up_once

if TYPE_CHECKING:
    from tests.billing.conftest import Books

HOUR = timedelta(hours=1)


async def test_spooled_usage_is_replayed_and_old_holds_are_closed(books: Books) -> None:
    outage = FakeOutageDatabase(books.database)
    books.ledger = Ledger(outage, books.spool)
    caller = await books.new_caller()
    spooled = await books.hold(caller, 1000)
    await books.hold(caller, 500)
    outage.is_down = True
    await books.settle(spooled, 400)
    outage.is_down = False
    await keep_up_once(books.ledger, now=books.now + 2 * HOUR, expire_holds_after=HOUR)
    assert await books.money(caller) == (400, 0)


async def test_while_usage_still_waits_no_hold_is_closed(books: Books) -> None:
    outage = FakeOutageDatabase(books.database)
    books.ledger = Ledger(outage, books.spool)
    caller = await books.new_caller()
    hold = await books.hold(caller, 1000)
    outage.is_down = True
    await books.settle(hold, 400)
    await keep_up_once(books.ledger, now=books.now + 2 * HOUR, expire_holds_after=HOUR)
    outage.is_down = False
    assert await books.money(caller) == (0, 1000)


async def test_it_goes_on_after_an_outage(books: Books) -> None:
    outage = FakeOutageDatabase(books.database)
    ledger = Ledger(outage, books.spool)
    caller = await books.new_caller()
    await books.hold(caller, 1000)
    outage.is_down = True
    later = books.now + 2 * HOUR
    running = asyncio.create_task(keep_up(ledger, every_s=0.01, expire_holds_after=HOUR, clock=lambda: later))
    try:
        await asyncio.sleep(0.05)
        assert not running.done()
        outage.is_down = False
        async with asyncio.timeout(10):
            while await books.money(caller) != (0, 0):  # noqa: ASYNC110 - nothing signals it
                await asyncio.sleep(0.01)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
