"""What may be spent while the ledger is away: bounded, kept across a restart, and charged in full when it is back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

from billing.caller import Caller
from billing.errors import AllowanceSpent, LedgerUnavailable, SpoolFull
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.store.database import FakeOutageDatabase
from billing.usage import Hold

if TYPE_CHECKING:
    from tests.billing.conftest import Books

ALLOWANCE = 10_000


@pytest.fixture
async def outage(books: Books) -> AsyncIterator[FakeOutageDatabase]:
    """The ledger's database behind a switch; `books.ledger` goes through it and has an allowance."""
    database = FakeOutageDatabase(books.database)
    books.ledger = Ledger(database, books.spool, offline_allowance_nano_usd=ALLOWANCE)
    yield database
    await books.ledger.close()


async def test_usage_without_a_ledger_is_degraded_and_charged_once_when_it_is_back(
    books: Books, outage: FakeOutageDatabase
) -> None:
    caller = await books.new_caller()
    outage.is_down = True
    hold = await books.hold(caller, 1000)
    assert (hold.kind, hold.status) == ("offline", "degraded")
    assert (await books.settle(hold, 400)).status == "degraded"
    outage.is_down = False
    # The ledger never had this hold.
    assert (await books.ledger.replay_spool()).posted == 1
    assert (await books.ledger.replay_spool()).posted == 0
    assert await books.money(caller) == (400, 0)
    assert await books.count_events() == 1


async def test_no_more_is_let_in_than_the_allowance_pays_for_at_any_concurrency(
    books: Books, outage: FakeOutageDatabase
) -> None:
    caller, other = await books.new_caller(), await books.new_caller()
    outage.is_down = True
    results = await asyncio.gather(*(books.hold(caller, 900) for _ in range(50)), return_exceptions=True)
    held = [result for result in results if isinstance(result, Hold)]
    assert len(held) == ALLOWANCE // 900
    assert all(isinstance(result, AllowanceSpent | Hold) for result in results)
    assert (await books.hold(other, ALLOWANCE)).kind == "offline", "each workspace has its own"


async def test_what_was_used_counts_and_not_what_it_might_have_cost(
    books: Books, outage: FakeOutageDatabase
) -> None:
    caller = await books.new_caller()
    outage.is_down = True
    await books.settle(await books.hold(caller, 9000), 400)
    with pytest.raises(AllowanceSpent):
        await books.hold(caller, ALLOWANCE - 399)
    released = await books.hold(caller, ALLOWANCE - 400)
    with pytest.raises(AllowanceSpent):
        await books.hold(caller, 1)
    assert await books.ledger.release(released, now=books.now)
    assert (await books.hold(caller, 1)).kind == "offline"


async def test_usage_that_was_held_in_the_ledger_and_spooled_counts_too(
    books: Books, outage: FakeOutageDatabase
) -> None:
    caller = await books.new_caller()
    hold = await books.hold(caller, 9000)
    outage.is_down = True
    await books.settle(hold, 9000)
    with pytest.raises(AllowanceSpent):
        await books.hold(caller, 1001)
    assert (await books.hold(caller, 1000)).kind == "offline"


async def test_a_restart_in_the_outage_gives_no_second_allowance(
    books: Books, outage: FakeOutageDatabase
) -> None:
    caller = await books.new_caller()
    outage.is_down = True
    await books.settle(await books.hold(caller, 9000), 9000)
    spool = Spool(books.spool_path)
    books.ledger = Ledger(outage, spool, offline_allowance_nano_usd=ALLOWANCE)
    with pytest.raises(AllowanceSpent):
        await books.hold(caller, 1001)
    assert (await books.hold(caller, 1000)).kind == "offline"
    await spool.close()


async def test_what_was_replayed_is_charged_to_the_limit_and_no_longer_to_the_allowance(
    books: Books, outage: FakeOutageDatabase
) -> None:
    caller = await books.new_caller(spend_limit_nano_usd=5000)
    for _ in range(2):
        outage.is_down = True
        # Over the workspace's limit, which nobody can ask now, and within the allowance.
        await books.settle(await books.hold(caller, ALLOWANCE), ALLOWANCE)
        outage.is_down = False
        assert (await books.ledger.replay_spool()).posted == 1
    assert await books.money(caller) == (2 * ALLOWANCE, 0)


async def test_a_ledger_that_comes_back_before_the_settlement_takes_it_at_once(
    books: Books, outage: FakeOutageDatabase
) -> None:
    caller = await books.new_caller()
    outage.is_down = True
    hold = await books.hold(caller, ALLOWANCE)
    outage.is_down = False
    books.ledger._requests._ledger_again_at = None
    assert (await books.settle(hold, 400)).status == "persisted"
    assert await books.money(caller) == (400, 0)
    outage.is_down = True
    assert (await books.hold(caller, ALLOWANCE)).kind == "offline", "nothing of it waits in the spool"


async def test_a_hold_whose_answer_was_lost_is_closed_by_its_settlement(
    books: Books, outage: FakeOutageDatabase
) -> None:
    caller = await books.new_caller()
    outage.loses_answers = True
    hold = await books.hold(caller, 1000)
    assert (hold.kind, await books.money(caller)) == ("offline", (0, 1000))
    await books.settle(hold, 400)
    outage.loses_answers = False
    await books.ledger.replay_spool()
    assert await books.money(caller) == (400, 0)


async def test_a_cancelled_request_gives_its_allowance_back(books: Books, outage: FakeOutageDatabase) -> None:
    caller = await books.new_caller()
    outage.is_down = True
    opening = asyncio.create_task(books.hold(caller, ALLOWANCE))
    await asyncio.sleep(0)
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    await books.ledger.close()
    assert (await books.hold(caller, ALLOWANCE)).kind == "offline"


async def test_without_an_allowance_nothing_is_let_in(books: Books, outage: FakeOutageDatabase) -> None:
    books.ledger = Ledger(outage, books.spool)
    caller = await books.new_caller()
    outage.is_down = True
    with pytest.raises(LedgerUnavailable):
        await books.hold(caller, 0)
    assert await books.spool.count_waiting() == 0


async def test_a_refusal_of_the_ledger_is_no_outage(books: Books, outage: FakeOutageDatabase) -> None:
    caller = await books.new_caller(spend_limit_nano_usd=10)
    with pytest.raises(Exception, match="quota exceeded"):
        await books.hold(caller, 11)


async def test_a_full_spool_refuses_work_while_the_ledger_is_away_and_keeps_what_was_let_in(
    books: Books, outage: FakeOutageDatabase
) -> None:
    caller: Caller = await books.new_caller()
    early = await books.hold(caller, 10)
    outage.is_down = True
    let_in = [await books.hold(caller, 10) for _ in range(20)]
    for hold in let_in:
        assert (await books.settle(hold, 10)).status == "degraded"
    with pytest.raises(SpoolFull, match="20 events"):
        await books.hold(caller, 10)
    assert (await books.settle(early, 10)).status == "degraded"
    outage.is_down = False
    # A full spool is no reason to refuse what the ledger itself can take.
    books.ledger._requests._ledger_again_at = None
    assert (await books.hold(caller, 10)).kind == "held"
    assert (await books.ledger.replay_spool()).posted == 21
    outage.is_down = True
    assert (await books.hold(caller, 10)).kind == "offline"


class FakeHangingDatabase(FakeOutageDatabase):
    """A fake of a database that accepts and never answers, until it gives up."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.waiting = 0
        self.gave_up = asyncio.Event()

    async def asked(self, times: int) -> None:
        async with asyncio.timeout(60):
            while self.waiting < times:  # noqa: ASYNC110 - nothing signals it
                await asyncio.sleep(0.001)

    async def write(self, work: Any, *, durable: bool = True) -> Any:
        if self.is_down:
            self.waiting += 1
            await self.gave_up.wait()
        return await super().write(work, durable=durable)


async def test_for_a_ledger_that_hangs_one_request_waits_and_the_others_do_not(books: Books) -> None:
    database = FakeHangingDatabase(books.database)
    books.ledger = Ledger(database, books.spool, offline_allowance_nano_usd=ALLOWANCE)
    caller = await books.new_caller()
    database.is_down = True
    first = asyncio.create_task(books.hold(caller, 10))
    await database.asked(1)
    database.gave_up.set()
    assert (await first).kind == "offline"
    # The next one that asks hangs again, and stands for all the others.
    asked = database.waiting
    database.gave_up.clear()
    books.ledger._requests._ledger_again_at = 0.001
    asking = asyncio.create_task(books.hold(caller, 10))
    await database.asked(asked + 1)
    for _ in range(15):
        hold = await books.hold(caller, 10)
        assert hold.kind == "offline" and (await books.settle(hold, 1)).status == "degraded"
    assert database.waiting == asked + 1 and not asking.done()
    database.gave_up.set()
    await asking
    await books.ledger.close()
