"""The spool and its replay: usage that the ledger could not take arrives exactly once, whatever breaks when."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from billing.errors import LedgerUnavailable, UsageNotRecorded
from billing.fake_database import FakeOutageDatabase
from billing.ledger import Ledger
from billing.price import Cost
from billing.spool import Replayed, Spool, replay
from billing.upkeep import keep_up_once
from billing.usage import Hold, Settlement, UsageFigures, event_from_json, event_to_json

if TYPE_CHECKING:
    from tests.billing.conftest import Books


@pytest.fixture
def outage(books: Books) -> FakeOutageDatabase:
    """The ledger's database behind a switch; `books.ledger` goes through it."""
    database = FakeOutageDatabase(books.database)
    books.ledger = Ledger(database, books.spool)
    return database


async def settle_during(outage: FakeOutageDatabase, books: Books, hold: Hold, cost: int = 400) -> Settlement:
    outage.is_down = True
    try:
        return await books.settle(hold, cost)
    finally:
        outage.is_down = False


async def test_usage_that_the_ledger_cannot_take_is_degraded_and_arrives_later(
    books: Books, outage: FakeOutageDatabase
) -> None:
    caller = await books.new_caller()
    hold = await books.hold(caller, 1000)

    settlement = await settle_during(outage, books, hold)

    assert (settlement.status, settlement.persisted) == ("degraded", False)
    assert await books.money(caller) == (0, 1000)
    assert await books.spool.count_waiting() == 1

    assert await replay(books.spool, outage) == Replayed(posted=1, known=0, refused=0, waiting=0)

    assert await books.money(caller) == (400, 0)
    assert await books.spool.count_waiting() == 0


async def test_replay_keeps_the_order_of_the_settlements(books: Books, outage: FakeOutageDatabase) -> None:
    caller = await books.new_caller()
    held = [await books.hold(caller) for _ in range(5)]
    for hold in reversed(held):
        await settle_during(outage, books, hold)
    assert [event.event_id for event in await books.spool.waiting()] == [h.event_id for h in reversed(held)]


async def test_replay_stops_where_the_ledger_is_still_away_and_loses_nothing(
    books: Books, outage: FakeOutageDatabase
) -> None:
    caller = await books.new_caller()
    for hold in [await books.hold(caller) for _ in range(3)]:
        await settle_during(outage, books, hold)
    outage.is_down = True
    assert await replay(books.spool, outage) == Replayed(posted=0, known=0, refused=0, waiting=3)
    outage.is_down = False
    assert (await replay(books.spool, outage, batch=2)).posted == 3
    assert await books.money(caller) == (1200, 0)


async def test_a_settlement_that_was_committed_and_whose_answer_was_lost_is_charged_once(
    books: Books, outage: FakeOutageDatabase
) -> None:
    caller = await books.new_caller()
    hold = await books.hold(caller)
    outage.loses_answers = True
    assert (await books.settle(hold)).status == "degraded"
    outage.loses_answers = False
    assert await replay(books.spool, outage) == Replayed(posted=0, known=1, refused=0, waiting=0)
    assert await books.money(caller) == (400, 0)


async def test_a_crash_between_the_ledgers_commit_and_the_spools_removal_doubles_nothing(
    books: Books, outage: FakeOutageDatabase
) -> None:
    caller = await books.new_caller()
    await settle_during(outage, books, await books.hold(caller))
    outage.loses_answers = True
    assert (await replay(books.spool, outage)).waiting == 1
    outage.loses_answers = False
    assert await replay(books.spool, outage) == Replayed(posted=0, known=1, refused=0, waiting=0)
    assert await books.money(caller) == (400, 0)


async def test_an_event_that_the_ledger_refuses_is_set_aside_and_the_rest_goes_on(
    books: Books, outage: FakeOutageDatabase
) -> None:
    caller = await books.new_caller()
    poisoned = replace(await books.hold(caller), pricing_version=999)
    sound = await books.hold(caller)
    assert (await books.settle(poisoned)).status == "degraded"
    await settle_during(outage, books, sound)

    assert await replay(books.spool, outage) == Replayed(posted=1, known=0, refused=1, waiting=0)

    refused = await books.spool.refused()
    assert [event.event_id for event in refused] == [poisoned.event_id]
    assert "refused" in (refused[0].refusal or "")
    assert await replay(books.spool, outage) == Replayed(posted=0, known=0, refused=0, waiting=0)


async def test_a_figure_that_no_column_can_hold_is_kept_in_the_spool(books: Books) -> None:
    caller = await books.new_caller()
    hold = await books.hold(caller)
    assert (await books.settle(hold, 2**63)).status == "degraded"
    assert (await replay(books.spool, books.database)).refused == 1


async def test_a_full_spool_raises_and_names_the_event(books: Books, outage: FakeOutageDatabase) -> None:
    caller = await books.new_caller()
    held = [await books.hold(caller) for _ in range(21)]
    for hold in held[:20]:
        await settle_during(outage, books, hold)
    # What is in the spool already needs no room.
    assert (await settle_during(outage, books, held[0])).status == "degraded"
    with pytest.raises(UsageNotRecorded, match=held[20].event_id):
        await settle_during(outage, books, held[20])


async def test_a_spool_that_cannot_be_written_raises(
    books: Books, outage: FakeOutageDatabase, tmp_path: Path
) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a folder")
    spool = Spool(in_the_way / "spool.db")
    books.ledger = Ledger(outage, spool)
    hold = await books.hold(await books.new_caller())
    with pytest.raises(UsageNotRecorded):
        await settle_during(outage, books, hold)
    await spool.close()


async def test_a_spool_that_is_no_database_raises(
    books: Books, outage: FakeOutageDatabase, tmp_path: Path
) -> None:
    (tmp_path / "broken.db").write_bytes(os.urandom(8192))
    spool = Spool(tmp_path / "broken.db")
    books.ledger = Ledger(outage, spool)
    hold = await books.hold(await books.new_caller())
    with pytest.raises(UsageNotRecorded):
        await settle_during(outage, books, hold)
    await spool.close()


async def test_the_spool_survives_its_process(books: Books, outage: FakeOutageDatabase) -> None:
    caller = await books.new_caller()
    await settle_during(outage, books, await books.hold(caller))
    # A second reader stands for the next process: nothing of the first one's memory is needed.
    successor = Spool(books.spool_path)
    assert (await replay(successor, outage)).posted == 1
    await successor.close()


async def test_a_hold_fails_when_the_ledger_is_away(books: Books, outage: FakeOutageDatabase) -> None:
    caller = await books.new_caller()
    outage.is_down = True
    with pytest.raises(LedgerUnavailable):
        await books.hold(caller)


async def test_a_release_when_the_ledger_is_away_is_left_to_the_sweeper(
    books: Books, outage: FakeOutageDatabase
) -> None:
    caller = await books.new_caller()
    hold = await books.hold(caller, 1000)
    outage.is_down = True
    assert await books.ledger.release(hold, now=books.now) is False
    outage.is_down = False
    assert await books.ledger.release_expired(books.now + timedelta(hours=2), timedelta(hours=1)) == 1
    assert await books.money(caller) == (0, 0)


async def test_an_event_survives_its_json(books: Books) -> None:
    hold = await books.hold(await books.new_caller())
    # Not degraded by an outage but by a row that is refused: the spooled text is what settle wrote.
    await books.ledger.settle(
        replace(hold, model_id="unknown"),
        figures=UsageFigures(1, 2, 0, stream=False),
        cost=Cost(3, 4, minimum_applied=True),
        outcome="disconnected",
        now=books.now,
    )
    (spooled,) = await books.spool.waiting()
    event = event_from_json(spooled.event)
    assert event_to_json(event) == spooled.event
    assert (event.model_id, event.outcome, event.cost_nano_usd) == ("unknown", "disconnected", 4)
    assert event.settled_at == books.now


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"created_at": 1, "settled_at": 2}', "{", "null"])
def test_text_that_is_no_event_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        event_from_json(text)


async def test_a_spool_file_that_a_full_disk_left_empty_keeps_no_dead_hold_open(books: Books) -> None:
    """Its missing table once ended every round of upkeep before the sweep."""
    caller = await books.new_caller()
    await books.hold(caller, 1000)
    books.spool_path.touch()

    assert (await books.spool.waiting(), await books.spool.count_waiting()) == ([], 0)
    await keep_up_once(
        books.ledger, now=books.now + timedelta(hours=2), expire_holds_after=timedelta(hours=1)
    )

    assert await books.money(caller) == (0, 0)
