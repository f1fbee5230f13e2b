"""Upkeep: what was spooled is replayed before any hold is closed, and a failure does not end it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from billing.background.upkeep import Loop, lease_round, replay_round
from billing.ledger.ledger import Ledger
from billing.store.database import FakeOutageDatabase

if TYPE_CHECKING:
    from tests.billing.conftest import Books


async def test_it_goes_on_after_an_outage(books: Books) -> None:
    outage = FakeOutageDatabase(books.database)
    books.ledger = Ledger(outage, books.spool)
    caller = await books.new_caller()
    settled, released = await books.hold(caller, 1000), await books.hold(caller, 500)
    outage.is_down = True
    await books.settle(settled, 400)
    await books.ledger.release(released, now=books.now)
    rounds = [replay_round(books.ledger, every_s=0.01), lease_round(books.ledger, every_s=0.01)]
    running = [asyncio.create_task(Loop(of).run()) for of in rounds]
    try:
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in running)
        outage.is_down = False
        async with asyncio.timeout(60):
            while await books.money(caller) != (400, 0):  # noqa: ASYNC110 - nothing signals it
                await asyncio.sleep(0.01)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
