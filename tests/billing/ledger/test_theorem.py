"""Posted and held never pass a limit, whatever becomes of holds: docs/adr/0010-posted-within-the-limit.md."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from billing.books.books import Books as Reader
from billing.caller import Caller
from billing.errors import QuotaExceeded
from billing.ledger.ledger import Ledger
from billing.store.database import FakeOutageDatabase
from billing.usage import Hold, UsageEvent, event_from_json

if TYPE_CHECKING:
    from tests.billing.conftest import Books

LIMIT = 10_000


async def swept(books: Books) -> None:
    await books.at(books.clock.moment + timedelta(minutes=2))
    await books.sweep()


async def test_a_server_that_was_stopped_until_its_hold_was_swept_charges_only_what_is_left(
    books: Books,
) -> None:
    """The review's: limit 3.00, posted 4.90."""
    caller = await books.new_caller(spend_limit_nano_usd=3000)
    stopped = await books.hold(caller, 3000)
    await swept(books)
    await books.settle(await books.hold(caller, 3000), 2900)

    settled = await books.settle(stopped, 2000)

    assert (settled.status, settled.written_off_nano_usd) == ("persisted", 1900)
    assert await books.money(caller) == (3000, 0)


async def test_what_was_used_is_charged_in_full_where_there_is_room_although_its_hold_was_swept(
    books: Books,
) -> None:
    caller = await books.new_caller(spend_limit_nano_usd=3000)
    hold = await books.hold(caller, 1000)
    await swept(books)
    assert (await books.settle(hold, 400)).written_off_nano_usd == 0
    assert await books.money(caller) == (400, 0)


async def test_a_cost_above_its_hold_takes_what_no_other_hold_has(books: Books) -> None:
    caller = await books.new_caller(spend_limit_nano_usd=1000)
    small, other = await books.hold(caller, 100), await books.hold(caller, 700)
    assert (await books.settle(small, 500)).written_off_nano_usd == 200
    assert await books.money(caller) == (300, 700)
    assert (await books.settle(other, 700)).written_off_nano_usd == 0
    assert await books.money(caller) == (1000, 0)


@pytest.mark.parametrize("limit", ["spend_limit_nano_usd", "monthly_limit_nano_usd"])
async def test_both_limits_bound_what_exceeds_a_hold(books: Books, limit: str) -> None:
    caller = await books.new_caller(**{limit: 1000})
    assert (await books.settle(await books.hold(caller, 1), 5000)).written_off_nano_usd == 4000
    assert await books.money(caller) == (1000, 0)


async def test_a_charge_within_its_hold_is_made_in_full_though_the_limit_was_lowered(books: Books) -> None:
    caller = await books.new_caller(spend_limit_nano_usd=1000)
    hold = await books.hold(caller, 1000)
    await books.accounts.change_workspace(
        caller.workspace_id, {"spend_limit_nano_usd": 10, "monthly_limit_nano_usd": 10}
    )
    assert (await books.settle(hold, 800)).written_off_nano_usd == 0
    assert await books.money(caller) == (800, 0)


async def test_what_was_written_off_is_on_the_event_and_the_books_add_up(books: Books) -> None:
    caller = await books.new_caller(spend_limit_nano_usd=1000)
    await books.settle(await books.hold(caller, 100), 1500)
    (event,) = await books.events()
    assert (event.cost_nano_usd, event.written_off_nano_usd, event.month) == (1500, 500, "2026-11")
    reader = Reader(books.database)
    found = await reader.reconcile(books.spool)
    totals = found.totals
    assert (found.differences, totals.posted_nano_usd, totals.written_off_nano_usd) == ([], 1000, 500)
    month = await reader.statement(caller.workspace_id, "2026-11")
    assert (month.used_nano_usd, month.written_off_nano_usd) == (1000, 500)
    assert month.closing.owed_nano_usd == 1000
    (line,) = await books.usage(["workspace"])
    assert (line.cost_nano_usd, line.written_off_nano_usd) == (1000, 500)


async def test_who_watches_is_told_what_was_written_off_also_after_the_spool(books: Books) -> None:
    told: list[tuple[str, int]] = []

    def tell(event: UsageEvent, nano_usd: int) -> None:
        told.append((event.event_id, nano_usd))

    outage = FakeOutageDatabase(books.database)
    books.ledger = Ledger(outage, books.spool, written_off=tell)
    caller = await books.new_caller(spend_limit_nano_usd=1000)
    one, two = await books.hold(caller, 600), await books.hold(caller, 400)
    outage.is_down = True
    await books.settle(one, 700)
    outage.is_down = False
    await books.settle(two, 500)
    await books.ledger.replay_spool()
    await books.ledger.replay_spool()
    assert told == [(two.event_id, 100), (one.event_id, 100)]
    assert await books.money(caller) == (1000, 0)


async def test_usage_under_the_allowance_is_charged_in_full_and_says_that_it_was(books: Books) -> None:
    outage = FakeOutageDatabase(books.database)
    books.ledger = Ledger(outage, books.spool, offline_allowance_nano_usd=10_000)
    caller = await books.new_caller(spend_limit_nano_usd=1000)
    outage.is_down = True
    await books.settle(await books.hold(caller, 5000), 5000)
    outage.is_down = False
    await books.ledger.replay_spool()
    (event,) = await books.events()
    assert (event.offline, event.written_off_nano_usd) == (True, 0)
    assert await books.money(caller) == (5000, 0)


async def test_usage_under_the_allowance_is_charged_in_full_in_the_month_that_takes_it_too(
    books: Books,
) -> None:
    outage = FakeOutageDatabase(books.database)
    books.ledger = Ledger(outage, books.spool, offline_allowance_nano_usd=10_000)
    caller = await books.new_caller(monthly_limit_nano_usd=1000)
    outage.is_down = True
    await books.settle(await books.hold(caller, 5000), 5000)
    outage.is_down = False
    await books.at(books.now + timedelta(days=20))
    await books.ledger.replay_spool()
    (event,) = await books.events()
    assert (event.offline, event.written_off_nano_usd, event.month) == (True, 0, "2026-12")
    assert await books.money(caller) == (5000, 0)


async def test_an_event_that_an_older_release_spooled_is_read(books: Books) -> None:
    hold = await books.hold(await books.new_caller())
    old = (
        f'{{"event_id":"{hold.event_id}","request_id":"r","workspace_id":"{hold.workspace_id}",'
        f'"project_id":"{hold.project_id}","key_id":"{hold.key_id}","model_id":"model-a","pricing_version":1,'
        '"prompt_tokens":1,"completion_tokens":2,"cached_tokens":0,"subtotal_nano_usd":4,'
        '"minimum_applied":false,"cost_nano_usd":4,"outcome":"completed","stream":false,'
        '"created_at":"2026-11-20T12:00:00+00:00","settled_at":"2026-11-20T12:00:00+00:00","receipt":null}'
    )
    event = event_from_json(old)
    assert (event.offline, event.route, event.compression, event.paired_with) == (False, None, None, None)
    assert (event.original_tokens, event.saved_nano_usd, event.compression_nano_usd) == (None, 0, 0)
    assert event.written_off_nano_usd == 0
    await books.spool.append(event)
    assert (await books.ledger.replay_spool()).posted == 1
    (line,) = await books.usage(["route"])
    assert (line.group, line.requests, line.cost_nano_usd) == ({"route": ""}, 1, 4)


async def test_settling_a_swept_hold_many_times_at_once_charges_it_once(books: Books) -> None:
    caller = await books.new_caller(spend_limit_nano_usd=10_000)
    hold = await books.hold(caller, 1000)
    await swept(books)
    await asyncio.gather(*(books.settle(hold, 400) for _ in range(20)))
    assert await books.money(caller) == (400, 0)


async def test_settlements_at_once_that_exceed_their_holds_share_what_is_left(books: Books) -> None:
    caller = await books.new_caller(spend_limit_nano_usd=LIMIT)
    holds = [await books.hold(caller, 100) for _ in range(50)]
    settled = await asyncio.gather(*(books.settle(hold, 300) for hold in holds))
    assert sum(one.written_off_nano_usd for one in settled) == 50 * 300 - LIMIT
    assert await books.money(caller) == (LIMIT, 0)


@pytest.mark.parametrize("seed", range(10))
async def test_at_every_step_of_any_order_posted_and_held_stay_within_the_limit(
    books: Books, seed: int
) -> None:
    rng = random.Random(seed)
    outage = FakeOutageDatabase(books.database)
    books.ledger = Ledger(outage, books.spool)
    caller = await books.new_caller(spend_limit_nano_usd=LIMIT, monthly_limit_nano_usd=LIMIT)
    held: list[Hold] = []
    for _ in range(60):
        await step(rng, books, outage, caller, held)
        posted, reserved = await money(books, caller)
        assert posted + reserved <= LIMIT, f"{posted} posted and {reserved} held"
    assert await books.differences() == []


async def step(
    rng: random.Random, books: Books, outage: FakeOutageDatabase, caller: Caller, held: list[Hold]
) -> None:
    match rng.randrange(6):
        case 0 | 1:
            try:
                held.append(await books.hold(caller, rng.randrange(1, LIMIT // 3)))
            except QuotaExceeded:
                return
        case 2 if held:
            outage.is_down = rng.random() < 0.3
            outage.loses_answers = rng.random() < 0.2
            hold = held.pop(rng.randrange(len(held)))
            await books.settle(hold, rng.randrange(hold.amount_nano_usd * 2))
        case 3 if held:
            outage.loses_answers = rng.random() < 0.3
            await books.ledger.release(held.pop(rng.randrange(len(held))), now=books.now)
        case 4:
            await swept(books)
        case _:
            await books.ledger.replay_spool()
    outage.is_down = outage.loses_answers = False


async def money(books: Books, caller: Caller) -> tuple[int, int]:
    workspace = await books.accounts.find_workspace(caller.workspace_id)
    return workspace.posted_nano_usd, workspace.held_nano_usd
