"""Leases on both databases: a live server's hold is closed by nobody, a dead one's soon, and no hold leaks."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text, update

from billing.errors import LedgerUnavailable, QuotaExceeded, SpoolFull
from billing.ledger import leases as lease_sql
from billing.ledger.leases import LeaseKeeper, LeaseTimes
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.store.database import FakeOutageDatabase
from billing.store.schema import holds
from billing.usage import Hold

if TYPE_CHECKING:
    from tests.billing.conftest import Books

TIMES = LeaseTimes()
AT_ONCE = LeaseTimes(renew_every_s=0)


@pytest.fixture
def outage(books: Books) -> FakeOutageDatabase:
    """The ledger's database behind a switch; `books.ledger` goes through it, and is due to renew at every call."""
    database = FakeOutageDatabase(books.database)
    books.ledger = Ledger(database, books.spool, lease=AT_ONCE)
    return database


async def leases(books: Books) -> dict[str, tuple[str, float]]:
    rows = await books.database.read(
        lambda c: c.execute(text("SELECT event_id, owner, expires_at FROM holds")).all()
    )
    return {row.event_id: (row.owner, row.expires_at) for row in rows}


def successor(books: Books) -> Ledger:
    """The server that is started anew on the same folder."""
    return Ledger(books.database, Spool(books.spool_path), lease=AT_ONCE)


async def test_a_dead_servers_hold_is_closed_after_its_lease_and_not_before(books: Books) -> None:
    caller = await books.new_caller()
    await books.hold(caller, 1000)
    await books.at(books.now + timedelta(seconds=59))
    await books.sweep()
    assert await books.money(caller) == (0, 1000)
    await books.at(books.now + timedelta(seconds=61))
    await books.sweep()
    assert await books.money(caller) == (0, 0)


async def test_a_live_servers_hold_is_never_closed_however_the_databases_clock_jumps(books: Books) -> None:
    caller = await books.new_caller()
    books.ledger = Ledger(books.database, books.spool, lease=AT_ONCE)
    await books.hold(caller, 1000)
    other = successor(books)
    for hours in (1, 24 * 40, -3, 0, -24 * 365, 2):
        await books.at(books.now + timedelta(hours=hours))
        for _ in range(2):
            # Not one look less: the third would close it.
            await other.keep_leases()
        await books.ledger.keep_leases()
        await other.keep_leases()
        assert await books.money(caller) == (0, 1000)


async def test_another_servers_settings_and_clock_close_nothing(books: Books) -> None:
    """A second server's own times once decided when this one's requests were over."""
    caller = await books.new_caller()
    await books.hold(caller, 1000)
    hurried = Ledger(
        books.database, Spool(books.spool_path), lease=LeaseTimes(ttl_s=0.01, renew_every_s=0, looks=1)
    )
    for _ in range(3):
        await hurried.keep_leases()
    assert await books.money(caller) == (0, 1000)


async def test_a_lease_that_was_renewed_after_it_was_looked_at_is_not_closed(books: Books) -> None:
    caller = await books.new_caller()
    hold = await books.hold(caller, 1000)
    owner, _ = (await leases(books))[hold.event_id]
    await books.at(books.now + timedelta(minutes=5))
    (found,) = await books.database.read(lambda c: lease_sql.neglected(c, "another", TIMES))
    assert found.has_ended
    await books.database.write(lambda c: lease_sql.renew(c, owner, TIMES))
    assert await books.database.write(lambda c: lease_sql.close_ended(c, [hold.event_id], TIMES)) == 0
    assert await books.money(caller) == (0, 1000)


async def test_a_request_that_is_younger_than_a_renewal_is_not_renewed(books: Books) -> None:
    caller = await books.new_caller()
    old = await books.hold(caller)
    young = await books.hold(caller, now=books.now + timedelta(seconds=12))
    before = await leases(books)
    await books.at(books.now + timedelta(seconds=15))
    await books.ledger.keep_leases()
    after = await leases(books)
    assert after[young.event_id] == before[young.event_id]
    assert after[old.event_id][1] == before[old.event_id][1] + 15


async def test_a_lease_that_a_clock_set_back_left_far_ahead_ends_too(books: Books) -> None:
    caller = await books.new_caller()
    hold = await books.hold(caller, 1000)
    await books.at(books.now - timedelta(days=30))
    keeper = LeaseKeeper(
        books.database, books.spool, owner="another", times=LeaseTimes(ttl_s=0.2, renew_every_s=0.01)
    )
    async with asyncio.timeout(60):
        while hold.event_id in await leases(books):
            await keeper.renew_and_sweep()
            await asyncio.sleep(0.02)
    assert await books.money(caller) == (0, 0)


async def test_a_hold_of_a_release_without_leases_is_closed_after_two_hours(books: Books) -> None:
    caller = await books.new_caller()
    await books.hold(caller, 1000)
    await books.database.write(lambda c: c.execute(update(holds).values(owner="", expires_at=0)))
    await books.at(books.now + timedelta(minutes=119))
    await books.sweep()
    assert await books.money(caller) == (0, 1000)
    await books.at(books.now + timedelta(minutes=121))
    await books.sweep()
    assert await books.money(caller) == (0, 0)


async def test_every_release_that_failed_is_made_good_when_the_ledger_is_back(
    books: Books, outage: FakeOutageDatabase
) -> None:
    caller = await books.new_caller(spend_limit_nano_usd=150 * 1000)
    opened = [await books.hold(caller, 1000) for _ in range(150)]
    outage.is_down = True
    results = await asyncio.gather(*(books.ledger.release(hold, now=books.now) for hold in opened))
    assert not any(results)
    with pytest.raises(LedgerUnavailable):
        await books.ledger.keep_leases()
    outage.is_down = False
    await books.ledger.keep_leases()
    assert await books.money(caller) == (0, 0)


async def test_a_hold_whose_opening_was_committed_and_not_answered_is_closed(
    books: Books, outage: FakeOutageDatabase
) -> None:
    caller = await books.new_caller(spend_limit_nano_usd=3000)
    outage.loses_answers = True
    for _ in range(3):
        with pytest.raises(LedgerUnavailable):
            await books.hold(caller, 1000)
    outage.loses_answers = False
    with pytest.raises(QuotaExceeded):
        await books.hold(caller, 1000)
    await books.ledger.keep_leases()
    assert await books.money(caller) == (0, 0)


async def test_a_hold_that_was_committed_unanswered_is_closed_though_the_spool_had_no_room_for_it(
    books: Books, outage: FakeOutageDatabase
) -> None:
    full = Spool(books.spool_path, max_rows=0)
    books.ledger = Ledger(outage, full, lease=AT_ONCE, offline_allowance_nano_usd=10_000)
    caller = await books.new_caller()
    outage.loses_answers = True
    with pytest.raises(SpoolFull):
        await books.hold(caller, 1000)
    outage.loses_answers = False
    assert await books.money(caller) == (0, 1000)
    await books.ledger.keep_leases()
    assert await books.money(caller) == (0, 0)
    await full.close()


async def test_a_release_that_was_committed_and_not_answered_changes_nothing_more(
    books: Books, outage: FakeOutageDatabase
) -> None:
    caller = await books.new_caller()
    gone, kept = await books.hold(caller, 1000), await books.hold(caller, 500)
    outage.loses_answers = True
    assert await books.ledger.release(gone, now=books.now) is False
    outage.loses_answers = False
    await books.ledger.keep_leases()
    assert await books.money(caller) == (0, 500)
    assert kept.event_id in await leases(books)


async def test_an_opening_that_is_under_way_is_not_taken_for_a_forgotten_hold(books: Books) -> None:
    caller = await books.new_caller()
    books.ledger = Ledger(books.database, books.spool, lease=AT_ONCE)
    for _ in range(20):
        opening = [asyncio.create_task(books.hold(caller, 1000)) for _ in range(8)]
        keeping = asyncio.create_task(books.ledger.keep_leases())
        opened = await asyncio.gather(*opening)
        await keeping
        await books.ledger.keep_leases()
        assert await books.money(caller) == (0, 8000)
        await asyncio.gather(*(books.settle(hold, 0) for hold in opened), books.ledger.keep_leases())
    assert await books.money(caller) == (0, 0)


async def spooled(books: Books, outage: FakeOutageDatabase, amount: int) -> Hold:
    hold = await books.hold(await books.new_caller(), amount)
    outage.is_down = True
    assert (await books.settle(hold, amount)).status == "degraded"
    outage.is_down = False
    return hold


async def test_the_hold_of_usage_that_waits_in_the_spool_is_kept_for_it(
    books: Books, outage: FakeOutageDatabase
) -> None:
    hold = await spooled(books, outage, 1000)
    for minutes in range(1, 6):
        await books.at(books.now + timedelta(minutes=minutes))
        await books.ledger.keep_leases()
        await books.sweep()
        assert hold.event_id in await leases(books)
    await books.ledger.replay_spool()
    assert await leases(books) == {}


async def test_a_restarted_server_keeps_its_predecessors_holds_until_their_usage_is_replayed(
    books: Books, outage: FakeOutageDatabase
) -> None:
    hold = await spooled(books, outage, 1000)
    dead = await books.hold(await books.new_caller(), 500)
    restarted = successor(books)
    await books.at(books.now + timedelta(minutes=5))
    for _ in range(5):
        await restarted.keep_leases()
    assert set(await leases(books)) == {hold.event_id}, "the dead one's other hold is closed"
    assert dead.event_id not in await leases(books)
    # It has taken the lease over, so the other servers leave it alone as well.
    await books.sweep()
    assert set(await leases(books)) == {hold.event_id}
    assert (await restarted.replay_spool()).posted == 1
    assert await leases(books) == {}


async def test_after_an_outage_the_owners_renew_before_anybody_sweeps(
    books: Books, outage: FakeOutageDatabase
) -> None:
    caller = await books.new_caller()
    await books.hold(caller, 1000)
    sweeper_sees = FakeOutageDatabase(books.database)
    sweeper = Ledger(sweeper_sees, Spool(books.spool_path), lease=AT_ONCE)
    await books.at(books.now + timedelta(seconds=50))
    for _ in range(5):
        await sweeper.keep_leases()
    sweeper_sees.is_down = outage.is_down = True
    for ledger in (books.ledger, sweeper):
        with pytest.raises(LedgerUnavailable):
            await ledger.keep_leases()
    await books.at(books.now + timedelta(minutes=30))
    sweeper_sees.is_down = outage.is_down = False
    for _ in range(2):
        await sweeper.keep_leases()
    await books.ledger.keep_leases()
    for _ in range(3):
        await sweeper.keep_leases()
    assert await books.money(caller) == (0, 1000)


async def test_a_closing_server_leaves_no_hold_that_it_knows_it_may_have_forgotten(
    books: Books, outage: FakeOutageDatabase
) -> None:
    caller = await books.new_caller()
    hold = await books.hold(caller, 1000)
    outage.is_down = True
    await books.ledger.release(hold, now=books.now)
    outage.is_down = False
    await books.ledger.close()
    assert await books.money(caller) == (0, 0)
