"""The spool and its replay: usage that the ledger could not take arrives exactly once, whatever breaks when."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from billing.background.upkeep import replay_once
from billing.books.books import Books as Reader
from billing.errors import LedgerUnavailable, SpoolUnavailable, UnknownSpooledEvent, UsageNotRecorded
from billing.ledger.ledger import Ledger
from billing.ledger.recording import Replayed, replay, retry
from billing.ledger.spool import MIN_FREE_BYTES, Spool
from billing.price import Cost, ModelPrice, cost
from billing.store.database import FakeOutageDatabase
from billing.usage import (
    Hold,
    Saving,
    Settlement,
    UsageFigures,
    Used,
    event_from_json,
    event_to_json,
    paired,
    usage_event,
)

if TYPE_CHECKING:
    from tests.billing.conftest import Books

PRICE = ModelPrice("model-a", 150_000, 600_000, 20_000)


async def settle_during(
    outage: FakeOutageDatabase, books: Books, hold: Hold, nano_usd: int = 400
) -> Settlement:
    outage.is_down = True
    try:
        return await books.settle(hold, nano_usd)
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


async def test_an_event_that_is_in_the_spool_already_is_not_kept_twice(
    books: Books, outage: FakeOutageDatabase
) -> None:
    hold = await books.hold(await books.new_caller())
    for _ in range(2):
        assert (await settle_during(outage, books, hold)).status == "degraded"
    assert await books.spool.count_waiting() == 1


@pytest.fixture(params=["a folder that cannot be made", "no database", "a full disk"])
async def broken(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Spool]:
    """A spool whose disk refuses writes, or is about to."""
    path = tmp_path / "broken.db"
    if request.param == "a folder that cannot be made":
        path.write_text("not a folder")
        path /= "spool.db"
    elif request.param == "no database":
        path.write_bytes(os.urandom(8192))
    else:
        usage = shutil.disk_usage(tmp_path)._replace(free=MIN_FREE_BYTES - 1)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    spool = Spool(path)
    yield spool
    await spool.close()


async def test_no_work_is_taken_on_whose_usage_could_be_lost(books: Books, broken: Spool) -> None:
    caller = await books.new_caller()
    books.ledger = Ledger(books.database, broken)
    for _ in range(2):
        with pytest.raises(SpoolUnavailable):
            await books.hold(caller)
    assert await books.money(caller) == (0, 0)


@pytest.mark.parametrize("broken", ["a folder that cannot be made", "no database"], indirect=True)
async def test_usage_that_nobody_can_take_raises_and_names_the_event(
    books: Books, outage: FakeOutageDatabase, broken: Spool
) -> None:
    hold = await books.hold(await books.new_caller())
    books.ledger = Ledger(outage, broken)
    with pytest.raises(UsageNotRecorded, match=hold.event_id):
        await settle_during(outage, books, hold)


async def test_a_disk_that_takes_writes_again_is_noticed(books: Books, tmp_path: Path) -> None:
    caller = await books.new_caller()
    (tmp_path / "late").write_text("in the way")
    spool = Spool(tmp_path / "late" / "spool.db")
    books.ledger = Ledger(books.database, spool)
    with pytest.raises(SpoolUnavailable):
        await books.hold(caller)
    (tmp_path / "late").unlink()
    assert (await books.hold(caller)).kind == "held"
    await spool.close()


async def test_an_event_set_aside_can_be_tried_again_and_arrives(
    books: Books, outage: FakeOutageDatabase
) -> None:
    caller = await books.new_caller()
    hold = replace(await books.hold(caller), pricing_version=books.pricing_version + 1)
    await books.settle(hold)
    assert (await replay(books.spool, outage)).refused == 1
    # What an operator may do about it: publish what was missing.
    await books.ledger.publish_prices([replace(PRICE, minimum_nano_usd=7)], now=books.now)
    await books.spool.retry(hold.event_id)
    assert await replay(books.spool, outage) == Replayed(posted=1, known=0, refused=0, waiting=0)
    assert await books.money(caller) == (400, 0)


async def test_only_what_was_set_aside_can_be_dropped(books: Books, outage: FakeOutageDatabase) -> None:
    caller = await books.new_caller()
    poisoned = replace(await books.hold(caller), pricing_version=999)
    waiting = await books.hold(caller)
    await books.settle(poisoned)
    await replay(books.spool, outage)
    await settle_during(outage, books, waiting)
    for event_id in (waiting.event_id, "none"):
        with pytest.raises(UnknownSpooledEvent):
            await books.spool.drop(event_id)
    (dropped,) = await books.spool.drop(poisoned.event_id)
    assert event_from_json(dropped.event).pricing_version == 999 and dropped.refusal
    assert await books.spool.refused() == [] and await books.spool.count_waiting() == 1


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


async def test_a_release_when_the_ledger_is_away_is_made_good_when_it_is_back(
    books: Books, outage: FakeOutageDatabase
) -> None:
    caller = await books.new_caller()
    hold = await books.hold(caller, 1000)
    outage.is_down = True
    assert await books.ledger.release(hold, now=books.now) is False
    outage.is_down = False
    await books.ledger.keep_leases()
    assert await books.money(caller) == (0, 0)


async def test_what_was_asked_is_noted_in_the_ledger_and_through_the_spool(
    books: Books, outage: FakeOutageDatabase
) -> None:
    hold = replace(await books.hold(await books.new_caller()), route="embeddings")
    await settle_during(outage, books, hold)
    (spooled,) = await books.spool.waiting()
    assert event_from_json(spooled.event).route == "embeddings"
    assert (await replay(books.spool, outage)).posted == 1
    (event,) = await books.events()
    assert event.route == "embeddings"


async def test_a_ledger_that_lists_other_prices_under_a_number_charges_what_was_due(
    books: Books, outage: FakeOutageDatabase
) -> None:
    """Restored from a backup that is older than a price list, it gives the list's number to the next one."""
    dear = replace(PRICE, input_micro_usd_per_mtok=1_500_000)
    due = cost(dear, prompt_tokens=1000, completion_tokens=0, minimum=True)
    hold = await books.hold(await books.new_caller(), due.nano_usd)
    used = Used(replace(hold, pricing_version=2), UsageFigures(1000, 0, 0, stream=False), due)
    await books.spool.append(usage_event(used, "completed", books.now, dear))
    assert await books.ledger.publish_prices([replace(PRICE, minimum_nano_usd=7)], now=books.now) == 2

    assert (await replay(books.spool, outage)).refused == 1
    (aside,) = await books.spool.refused()
    assert "lists no such price" in (aside.refusal or "") and "1500000" in (aside.refusal or "")
    assert not (await Reader(books.database).reconcile(books.spool)).is_clean

    assert await books.ledger.publish_prices([dear], now=books.now) == 3
    assert await retry(books.spool, outage, hold.event_id) == "in the ledger"
    (event,) = await books.events()
    assert (event.pricing_version, event.cost_nano_usd) == (3, due.nano_usd)
    found = await Reader(books.database).reconcile(books.spool)
    assert (found.is_clean, found.mispriced) == (True, ())


async def test_spooled_usage_names_its_price_and_keeps_its_number_where_that_lists_it(
    books: Books, outage: FakeOutageDatabase
) -> None:
    listed = await books.ledger.current_prices()
    hold = await books.hold(await books.new_caller())
    await settle_during(outage, books, hold)
    (spooled,) = await books.spool.waiting()
    event = event_from_json(spooled.event)
    assert event.listed_price == listed.of("model-a") is not None
    for prices in ([replace(PRICE, minimum_nano_usd=7)], [PRICE]):
        await books.ledger.publish_prices(prices, now=books.now)
    assert (await replay(books.spool, outage)).posted == 1
    assert [one.pricing_version for one in await books.events()] == [listed.version]


async def test_a_saving_survives_its_json(books: Books) -> None:
    hold = await books.hold(await books.new_caller())
    figures = UsageFigures(1, 2, 0, stream=False, saving=Saving("holdout", 9, 3, -4, conversation="c" * 32))
    event = usage_event(Used(hold, figures, Cost(3, 4, minimum_applied=True)), "completed", books.now)
    for one in paired([event, replace(event, event_id="e" * 32)]):
        assert event_from_json(event_to_json(one)) == one
        assert one.paired_with is not None


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
    hold = await books.hold(caller, 1000)
    books.ledger._leases.mark_possibly_open(hold.event_id)
    books.spool_path.touch()

    assert (await books.spool.waiting(), await books.spool.count_waiting()) == ([], 0)
    await replay_once(books.ledger)
    await books.ledger.keep_leases()

    assert await books.money(caller) == (0, 0)
