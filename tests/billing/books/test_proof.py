"""Proving events stretch by stretch: what was proven is not read again, and nothing that changes goes unnoticed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from billing.books import proof
from billing.books.books import Books as Reader
from billing.books.books import Reconciliation
from billing.books.rebuild import EventsChanged
from billing.caller import Caller
from billing.ledger import ledger_sql
from billing.price import cost
from billing.rollups import checkpoint_sql
from billing.rollups.partitions import day_of
from billing.usage import UsageEvent, UsageFigures, mint_event_id
from tests.billing.chats import forge
from tests.billing.conftest import PRICES

if TYPE_CHECKING:
    from tests.billing.conftest import Books


@pytest.fixture(autouse=True)
def days_are_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not more of them, which have fewer events together than a stretch has."""
    monkeypatch.setattr(checkpoint_sql, "EVENTS_IN_ONE", 1)


async def use(books: Books, caller: Caller, moment: datetime, tokens: int = 1000) -> None:
    hold = await books.hold(caller, 10**9, now=moment)
    due = cost(PRICES[0], prompt_tokens=tokens, completion_tokens=0, minimum=True)
    figures = UsageFigures(tokens, 0, 0, stream=False)
    await books.ledger.settle(hold, figures=figures, cost=due, outcome="completed", now=moment)


async def days_of_use(books: Books, days: int, each: int = 3) -> Caller:
    """So many events on each of the last days, today included."""
    caller = await books.new_caller()
    for back in range(days - 1, -1, -1):
        for _ in range(each):
            await use(books, caller, books.now - timedelta(days=back))
    return caller


async def reconciled(books: Books, *, full: bool = False) -> Reconciliation:
    return await Reader(books.database).reconcile(books.spool, full=full)


async def test_what_was_proven_is_not_read_again(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "EVENTS_AT_ONCE", 2)
    await days_of_use(books, 8)
    first = await reconciled(books)
    assert first.is_clean and first.events_read == first.totals.events == 24
    # Today and yesterday are not over, and the day that was read the longest time ago is read again.
    second = await reconciled(books)
    assert second.is_clean and second.events_read == 3 * 3
    assert second.totals.events == 24
    assert (await reconciled(books, full=True)).events_read == 24


async def test_a_changed_event_is_found_by_a_full_proof_and_by_ordinary_ones_in_turn(books: Books) -> None:
    await days_of_use(books, 6)
    assert (await reconciled(books)).is_clean
    change = "UPDATE usage_events SET request_id = 'another' WHERE event_id IN (SELECT max(event_id) FROM usage_events "
    await forge(
        books, f"{change} WHERE settled_at < :moment)", moment=_stored(books, books.now - timedelta(days=3))
    )
    found = await reconciled(books, full=True)
    (changed,) = found.changed
    assert not found.is_clean and (changed.events_then, changed.events_now) == (3, 3)
    last = day_of(changed.until_id)
    assert last is not None and last == (books.now - timedelta(days=3)).date()
    # Four days are over.
    ordinary = [await reconciled(books) for _ in range(4)]
    assert [changed] in [list(one.changed) for one in ordinary]


@pytest.mark.parametrize(
    "statement", ["DELETE FROM usage_events", "UPDATE usage_events SET cost_nano_usd = 1"]
)
async def test_a_lost_or_rewritten_charge_of_long_ago_is_named(books: Books, statement: str) -> None:
    await days_of_use(books, 5)
    assert (await reconciled(books)).is_clean
    if statement.startswith("DELETE"):
        await _allow_deletes(books)
    await forge(
        books, f"{statement} WHERE settled_at < :moment", moment=_stored(books, books.now - timedelta(days=3))
    )
    found = await reconciled(books, full=True)
    assert len(found.changed) == 1 and not found.is_clean
    assert bool(found.mispriced) == statement.startswith("UPDATE")


async def test_an_event_that_arrives_late_is_proven_where_it_belongs(books: Books) -> None:
    caller = await days_of_use(books, 6)
    assert (await reconciled(books)).is_clean
    (known, *_) = await books.events()
    late = replace(known, event_id=mint_event_id(books.now - timedelta(days=4)))
    await books.database.write(partial(ledger_sql.post_all, events=[late]))
    assert await books.differences() == []
    found = await reconciled(books)
    assert found.is_clean and found.totals.events == 19
    # Its day, two that are not over, and one in turn.
    assert found.events_read == 4 + 6 + 3
    assert (await reconciled(books, full=True)).is_clean
    assert await books.money(caller) is not None


async def test_a_stretch_in_which_an_event_arrives_while_it_is_read_is_not_taken_for_proven(
    books: Books,
) -> None:
    await days_of_use(books, 3, each=1)
    (known, *_) = await books.events()
    stretches = await books.database.read(checkpoint_sql.extend)
    assert await books.database.write(partial(checkpoint_sql.begin, stretches=stretches))
    seen = next(one for one in stretches if one.from_id <= known.event_id < (one.until_id or ""))
    late = replace(known, event_id=known.event_id[:12] + "f" * 20)
    await books.database.write(partial(ledger_sql.post_all, events=[late]))
    keep = partial(checkpoint_sql.keep, stretch=seen, digest="of one event", events=1, sums=[])
    assert not await books.database.write(keep)
    assert seen.from_id in {one.from_id for one in await books.database.read(checkpoint_sql.unproven)}
    found = await reconciled(books)
    assert found.is_clean and found.events_read == 4


async def test_an_event_with_a_wrong_price_is_named_every_time(books: Books) -> None:
    await days_of_use(books, 4)
    await forge(
        books,
        "UPDATE usage_events SET prompt_tokens = prompt_tokens + 1 WHERE settled_at < :moment",
        moment=_stored(books, books.now - timedelta(days=2)),
    )
    for _ in range(3):
        found = await reconciled(books)
        assert len(found.mispriced) == 3 and found.changed == ()


async def test_two_proofs_at_once_are_both_made(books: Books) -> None:
    await days_of_use(books, 5)
    both = await asyncio.gather(reconciled(books), reconciled(books, full=True))
    assert [one.is_clean for one in both] == [True, True]
    stretches = await books.database.read(checkpoint_sql.stretches)
    # Without a gap and without an overlap.
    assert [one.until_id for one in stretches[:-1]] == [one.from_id for one in stretches[1:]]
    assert (await reconciled(books, full=True)).events_read == 15


async def test_a_known_change_does_not_keep_other_days_from_their_turn(books: Books) -> None:
    await days_of_use(books, 7, each=1)
    assert (await reconciled(books)).is_clean
    change = "UPDATE usage_events SET request_id = 'another' WHERE event_id = :event_id"
    events = await books.events()
    await forge(books, change, event_id=events[0].event_id)
    named = [(await reconciled(books)).changed for _ in range(6)]
    assert all(named)
    await forge(books, change, event_id=events[3].event_id)
    named = [(await reconciled(books)).changed for _ in range(6)]
    assert all(named) and len(named[-1]) == 2


ERASED = 50_000


async def erase_a_debt(books: Books, caller: Caller, events: Sequence[UsageEvent]) -> None:
    """Everywhere but in the events."""
    first = min(event.settled_at for event in events)
    for statement in (
        f"UPDATE checkpoint_sums SET charged_nano_usd = charged_nano_usd - {ERASED} "
        "WHERE from_id = (SELECT min(from_id) FROM checkpoint_sums)",
        f"UPDATE workspaces SET posted_nano_usd = posted_nano_usd - {ERASED}, "
        f"month_posted_nano_usd = month_posted_nano_usd - {ERASED}",
        f"UPDATE usage_months SET cost_nano_usd = cost_nano_usd - {ERASED}",
        f"UPDATE usage_days SET cost_nano_usd = cost_nano_usd - {ERASED} WHERE day = '{first:%Y-%m-%d}'",
    ):
        await books.database.write(lambda c, statement=statement: c.execute(text(statement)))  # type: ignore[misc]


async def test_a_debt_that_was_erased_everywhere_but_in_the_events_is_found_and_restored(
    books: Books,
) -> None:
    caller = await days_of_use(books, 6, each=1)
    assert (await reconciled(books)).is_clean
    events = await books.events()
    due = sum(event.cost_nano_usd for event in events)
    await erase_a_debt(books, caller, events)
    # By a full proof at once, and by an ordinary one when the day has its turn: from then on by every one.
    found = [await reconciled(books, full=True), await reconciled(books), await reconciled(books)]
    for one in found:
        assert not one.is_clean and one.changed == ()
        wanted = {"posted": (due - ERASED, due), "month_posted": (due - ERASED, due)}
        assert {
            each.figure: (each.stored_nano_usd, each.rebuilt_nano_usd) for each in one.differences
        } == wanted
        assert {each.table for each in one.wrong_sums} == {"checkpoint_sums", "usage_days", "usage_months"}
    done = await Reader(books.database).rebuild(actor="test", now=books.now)
    assert {each.rebuilt_nano_usd for each in done} == {due}
    assert await books.money(caller) == (due, 0)
    assert (await reconciled(books, full=True)).is_clean


async def test_a_rebuild_goes_by_events_and_not_by_what_was_kept_of_them(books: Books) -> None:
    caller = await days_of_use(books, 6, each=1)
    assert (await reconciled(books)).is_clean
    before = await books.money(caller)
    for table in ("checkpoint_sums", "event_checkpoints"):
        column = "charged_nano_usd" if table == "checkpoint_sums" else "read_number"
        wrong = text(f"UPDATE {table} SET {column} = 0")
        await books.database.write(lambda c, wrong=wrong: c.execute(wrong))  # type: ignore[misc]
    assert not (await reconciled(books, full=True)).is_clean
    assert await Reader(books.database).rebuild(actor="test", now=books.now) == []
    assert await books.money(caller) == before
    assert (await reconciled(books, full=True)).is_clean


async def test_nothing_is_rebuilt_from_events_that_are_not_those_that_were_proven(books: Books) -> None:
    caller = await days_of_use(books, 4, each=1)
    assert (await reconciled(books)).is_clean
    owed = (await books.accounts.find_workspace(caller.workspace_id)).posted_nano_usd
    (first, *_) = await books.events()
    await _allow_deletes(books)
    await forge(books, "DELETE FROM usage_events WHERE event_id = :event_id", event_id=first.event_id)
    with pytest.raises(EventsChanged, match=r"in 1 stretches .* restore these events"):
        await Reader(books.database).rebuild(actor="test", now=books.now)
    assert (await books.accounts.find_workspace(caller.workspace_id)).posted_nano_usd == owed


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_a_transaction_that_saw_no_stretch_is_waited_for(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wrote before the stretches were committed, and its number may be higher than theirs."""
    await days_of_use(books, 4, each=1)
    (known, *_) = await books.events()
    late = replace(known, event_id=known.event_id[:12] + "f" * 20)
    engine = create_async_engine(books.url)
    async with engine.connect() as beginning, engine.connect() as replaying:
        stretches = await beginning.run_sync(checkpoint_sql.extend)
        assert await beginning.run_sync(partial(checkpoint_sql.begin, stretches=stretches)) is not False
        await replaying.run_sync(partial(ledger_sql.post_all, events=[late]))
        await beginning.commit()
        monkeypatch.setattr(proof, "WAITS", 2)
        monkeypatch.setattr(proof, "WAIT_S", 0.0)
        found = await reconciled(books)
        assert found.is_clean and found.events_read == 4
        assert all(one.digest is None for one in await books.database.read(checkpoint_sql.stretches))
        await replaying.commit()
    await engine.dispose()
    assert await books.differences() == []
    found = await reconciled(books)
    assert found.is_clean and found.events_read == 5
    assert await books.database.read(checkpoint_sql.unproven) == []


def _stored(books: Books, moment: datetime) -> object:
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f") if books.url.startswith("sqlite") else moment


async def _allow_deletes(books: Books) -> None:
    if books.url.startswith("sqlite"):
        await books.database.write(lambda c: c.execute(text("DROP TRIGGER usage_events_no_delete")))
