"""Credits, adjustments and refunds on every database: once, exactly, and within every limit and constraint."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from billing.accounts import audit_log
from billing.adjustments.adjustment import (
    AdjustmentKeyReused,
    AdjustmentRefused,
    AmbiguousRequest,
    UnknownEvent,
    UnknownRequest,
)
from billing.adjustments.adjustments import Adjustments
from billing.books.books import Books as Reader
from billing.collections.collection import NANO_PER_CENT
from billing.collections.collector import Collector
from billing.errors import QuotaExceeded, RowRefused, UnknownAccount
from billing.usage import Hold

if TYPE_CHECKING:
    from billing.accounts.account_sql import Workspace
    from billing.caller import Caller
    from tests.billing.conftest import Books

LIMIT = 10_000


def adjusting(books: Books) -> Adjustments:
    return Adjustments(books.database, actor="test")


async def credit(books: Books, caller: Caller, nano_usd: int, key: str = "k") -> Any:
    return await adjusting(books).credit(
        caller.workspace_id, nano_usd=nano_usd, reason="goodwill", idempotency_key=key
    )


async def adjust(books: Books, caller: Caller, nano_usd: int, key: str = "k") -> Any:
    return await adjusting(books).adjust(
        caller.workspace_id, nano_usd=nano_usd, reason="a correction", idempotency_key=key
    )


async def refund(books: Books, event_id: str, nano_usd: int | None = None, key: str = "k") -> Any:
    return await adjusting(books).refund(event_id, nano_usd=nano_usd, reason="broken", idempotency_key=key)


async def spend(books: Books, caller: Caller, nano_usd: int, request_id: str = "request") -> str:
    """The id of an event of this cost."""
    hold = await books.hold(caller, nano_usd, request_id=request_id)
    await books.settle(hold, nano_usd)
    return hold.event_id


async def workspace(books: Books, caller: Caller) -> Workspace:
    found = await Reader(books.database).reconcile(books.spool)
    # These events' costs are not by any price list.
    assert (found.differences, found.wrong_adjustments) == ([], ())
    return await books.accounts.find_workspace(caller.workspace_id)


async def sums(books: Books, caller: Caller) -> tuple[int, int, int]:
    """Posted, credited and the month's total, after everything was found to add up."""
    found = await workspace(books, caller)
    return found.posted_nano_usd, found.credited_nano_usd, found.month_posted_nano_usd


async def test_a_credit_lowers_what_is_owed_and_makes_room(books: Books) -> None:
    caller = await books.new_caller(spend_limit_nano_usd=1000)
    await spend(books, caller, 1000)
    with pytest.raises(QuotaExceeded):
        await books.hold(caller, 1)
    made = await credit(books, caller, 300)
    assert (made.kind, made.nano_usd, made.month, made.actor) == ("credit", -300, "2026-11", "test")
    assert await sums(books, caller) == (1000, 300, 700)
    await spend(books, caller, 300)
    with pytest.raises(QuotaExceeded):
        await books.hold(caller, 1)
    assert await sums(books, caller) == (1300, 300, 1000)


async def test_what_is_paid_in_advance_can_be_spent_under_limits_of_nothing(books: Books) -> None:
    caller = await books.new_caller(spend_limit_nano_usd=0, monthly_limit_nano_usd=0)
    await credit(books, caller, 500)
    assert await sums(books, caller) == (0, 500, -500)
    await spend(books, caller, 500)
    with pytest.raises(QuotaExceeded):
        await books.hold(caller, 1)


async def test_an_upward_adjustment_is_owed_and_never_passes_a_limit(books: Books) -> None:
    caller = await books.new_caller(spend_limit_nano_usd=1000)
    hold = await books.hold(caller, 600)
    with pytest.raises(AdjustmentRefused, match="raise the limit"):
        await adjust(books, caller, 401)
    assert await sums(books, caller) == (0, 0, 0)
    await adjust(books, caller, 400)
    await books.settle(hold, 600)
    assert await sums(books, caller) == (1000, 0, 1000)
    await adjust(books, caller, -1000, "down")
    assert await sums(books, caller) == (1000, 1000, 0)


async def test_the_monthly_limit_bounds_an_upward_adjustment_too(books: Books) -> None:
    caller = await books.new_caller(monthly_limit_nano_usd=1000)
    await spend(books, caller, 900)
    hold = await books.hold(caller, 40)
    with pytest.raises(AdjustmentRefused, match="limit"):
        await adjust(books, caller, 61)
    await adjust(books, caller, 60)
    await books.settle(hold, 40)
    assert await sums(books, caller) == (1000, 0, 1000)


async def test_an_event_is_refunded_in_parts_and_never_beyond_its_charge(books: Books) -> None:
    caller = await books.new_caller()
    event = await spend(books, caller, 1000)
    assert (await refund(books, event, 300, "one")).nano_usd == -300
    with pytest.raises(AdjustmentRefused, match=r"can still be refunded"):
        await refund(books, event, 701, "two")
    rest = await refund(books, event, None, "two")
    assert (rest.nano_usd, rest.event_id, rest.project_id) == (-700, event, caller.project_id)
    for amount in (1, None):
        with pytest.raises(AdjustmentRefused):
            await refund(books, event, amount, "three")
    assert await sums(books, caller) == (1000, 1000, 0)


async def test_what_was_written_off_cannot_be_refunded(books: Books) -> None:
    caller = await books.new_caller(spend_limit_nano_usd=1000)
    hold = await books.hold(caller, 1000)
    assert (await books.settle(hold, 1500)).written_off_nano_usd == 500
    assert (await refund(books, hold.event_id)).nano_usd == -1000


async def test_a_refund_of_an_event_of_last_month_counts_to_this_one(books: Books) -> None:
    caller = await books.new_caller(monthly_limit_nano_usd=1000)
    event = await spend(books, caller, 800)
    await books.at(books.now + timedelta(days=20))
    assert (await refund(books, event)).month == "2026-12"
    assert await sums(books, caller) == (800, 800, -800)
    reader = Reader(books.database)
    november = await reader.statement(caller.workspace_id, "2026-11")
    december = await reader.statement(caller.workspace_id, "2026-12")
    assert (november.adjustments, november.closing.owed_nano_usd) == ((), 800)
    assert [one.event_id for one in december.adjustments] == [event]
    assert (december.opening.owed_nano_usd, december.closing.owed_nano_usd) == (800, 0)


async def test_the_same_key_is_one_adjustment_and_another_content_is_refused(books: Books) -> None:
    caller, other = await books.new_caller(), await books.new_caller()
    event = await spend(books, caller, 1000)
    first = await refund(books, event, 400)
    assert await refund(books, event, 400) == first
    for wrong in (
        refund(books, event, 500),
        refund(books, event),
        credit(books, caller, 400),
        adjust(books, caller, -400),
    ):
        with pytest.raises(AdjustmentKeyReused, match=first.id):
            await wrong
    rest = await refund(books, event, None, "rest")
    assert await refund(books, event, None, "rest") == rest
    with pytest.raises(AdjustmentKeyReused, match=rest.id):
        await refund(books, event, 600, "rest")
    # Another workspace's key is its own.
    await credit(books, other, 5)
    assert await sums(books, caller) == (1000, 1000, 0)


async def test_the_same_key_many_times_at_once_is_one_adjustment(books: Books) -> None:
    caller = await books.new_caller()
    made = await asyncio.gather(*(credit(books, caller, 70) for _ in range(12)))
    assert len({one.id for one in made}) == 1
    assert await sums(books, caller) == (0, 70, -70)


async def test_refunds_of_one_event_at_once_give_back_its_charge_once(books: Books) -> None:
    caller = await books.new_caller()
    event = await spend(books, caller, 1000)
    done = await asyncio.gather(
        *(refund(books, event, 400, f"key {number}") for number in range(6)), return_exceptions=True
    )
    refused = [one for one in done if isinstance(one, AdjustmentRefused)]
    assert (len(done) - len(refused), len(refused)) == (2, 4)
    assert await sums(books, caller) == (1000, 800, 200)


async def test_a_refund_of_what_was_collected_is_credit_toward_the_next_collection(books: Books) -> None:
    caller, collector = await books.new_caller(), Collector(books.database, actor="test")
    event = await spend(books, caller, 10 * NANO_PER_CENT)
    (first,) = await collector.cut_due(threshold_cents=1, now=books.now)
    await collector.mark(first.id, "paid", now=books.now)
    await refund(books, event, 6 * NANO_PER_CENT)
    statement = await Reader(books.database).statement(caller.workspace_id, "2026-11")
    assert statement.closing.owed_nano_usd == -6 * NANO_PER_CENT
    await spend(books, caller, 6 * NANO_PER_CENT)
    assert await collector.cut_due(threshold_cents=1, now=books.now) == []
    assert await collector.cut_now(caller.workspace_id, now=books.now) is None
    await spend(books, caller, NANO_PER_CENT)
    (second,) = await collector.cut_due(threshold_cents=1, now=books.now)
    assert second.cents == 1
    # A void collection is uncollected again, whatever was credited meanwhile.
    await collector.mark(second.id, "void", now=books.now)
    assert (await workspace(books, caller)).collected_nano_usd == 10 * NANO_PER_CENT


async def test_an_upward_adjustment_is_collected(books: Books) -> None:
    caller, collector = await books.new_caller(), Collector(books.database, actor="test")
    await adjust(books, caller, 5 * NANO_PER_CENT)
    (made,) = await collector.cut_due(threshold_cents=1, now=books.now)
    assert made.cents == 5
    assert (await workspace(books, caller)).collected_nano_usd == made.nano_usd


async def test_refunds_against_cuts_at_once_leave_no_collection_beyond_what_is_owed(books: Books) -> None:
    caller, collector = await books.new_caller(), Collector(books.database, actor="test")
    events = [await spend(books, caller, NANO_PER_CENT) for _ in range(12)]
    await asyncio.gather(
        *(refund(books, event, None, event) for event in events[:8]),
        *(collector.cut_due(threshold_cents=1, now=books.now) for _ in range(8)),
    )
    found = await workspace(books, caller)
    assert (found.posted_nano_usd, found.credited_nano_usd) == (12 * NANO_PER_CENT, 8 * NANO_PER_CENT)
    assert 4 * NANO_PER_CENT <= found.collected_nano_usd <= 12 * NANO_PER_CENT


async def test_a_credit_that_held_money_counts_on_keeps_the_next_month_within_its_limit(
    books: Books,
) -> None:
    """What is held beyond the monthly limit alone is charged to the month whose credit made its room."""
    caller = await books.new_caller(monthly_limit_nano_usd=1000)
    await credit(books, caller, 2000)
    first, second = await books.hold(caller, 1500), await books.hold(caller, 1500)
    await books.at(books.now + timedelta(days=20))
    with pytest.raises(QuotaExceeded):
        await books.hold(caller, 1)
    await books.settle(first, 1500, now=books.clock.moment)
    await books.settle(second, 900, now=books.clock.moment)
    assert [event.month for event in await books.events()] == ["2026-11", "2026-11"]
    await spend(books, caller, 1000)
    assert await sums(books, caller) == (3400, 2000, 1000)


@pytest.mark.parametrize("seed", range(2))
async def test_at_every_step_of_any_order_what_is_committed_stays_within_the_limits(
    books: Books, seed: int
) -> None:
    rng = random.Random(seed)
    caller = await books.new_caller(spend_limit_nano_usd=LIMIT, monthly_limit_nano_usd=LIMIT)
    held: list[Hold] = []
    settled: list[str] = []
    for number in range(50):
        await step(rng, books, caller, held, settled, f"key {number}")
        found = await books.accounts.find_workspace(caller.workspace_id)
        committed = found.posted_nano_usd - found.credited_nano_usd + found.held_nano_usd
        assert committed <= LIMIT
        assert found.month_posted_nano_usd + found.held_nano_usd <= LIMIT
    assert await sums(books, caller)


async def step(
    rng: random.Random, books: Books, caller: Caller, held: list[Hold], settled: list[str], key: str
) -> None:
    try:
        match rng.randrange(7):
            case 0 | 1:
                held.append(await books.hold(caller, rng.randrange(1, LIMIT // 2)))
            case 2 | 3 if held:
                hold = held.pop(rng.randrange(len(held)))
                await books.settle(hold, rng.randrange(hold.amount_nano_usd * 2))
                settled.append(hold.event_id)
            case 4 if settled:
                amount = rng.choice([None, rng.randrange(1, LIMIT)])
                await refund(books, rng.choice(settled), amount, key)
            case 5:
                await adjust(books, caller, rng.choice([-1, 1]) * rng.randrange(1, LIMIT), key)
            case 6 if rng.random() < 0.3:
                await books.at(books.clock.moment + timedelta(days=rng.choice([-40, 20, 40])))
    except (QuotaExceeded, AdjustmentRefused):
        return


async def test_credits_and_charges_at_once_add_up(books: Books) -> None:
    caller = await books.new_caller(spend_limit_nano_usd=LIMIT)
    holds = [await books.hold(caller, 100) for _ in range(30)]
    await asyncio.gather(
        *(books.settle(hold, 100) for hold in holds),
        *(credit(books, caller, 10, f"key {number}") for number in range(20)),
    )
    assert await sums(books, caller) == (3000, 200, 2800)


async def test_what_is_not_there_is_not_adjusted(books: Books) -> None:
    with pytest.raises(UnknownAccount):
        await adjusting(books).credit("nobody", nano_usd=1, reason="r", idempotency_key="k")
    for event in ("nothing", "a\x00b", "\ud800"):
        with pytest.raises(UnknownEvent):
            await refund(books, event)


async def test_sums_never_pass_what_the_ledger_can_count(books: Books) -> None:
    caller = await books.new_caller()
    for number in range(4):
        await credit(books, caller, 10**18, f"key {number}")
    with pytest.raises(AdjustmentRefused):
        await credit(books, caller, 1, "one more")
    await spend(books, caller, 1000)


@pytest.mark.parametrize("verb", ["UPDATE adjustments SET nano_usd = -1", "DELETE FROM adjustments"])
async def test_the_database_refuses_to_rewrite_an_adjustment(books: Books, verb: str) -> None:
    await credit(books, await books.new_caller(), 5)
    with pytest.raises(RowRefused, match="append-only"):
        await books.database.write(lambda c: c.execute(text(verb)))


async def test_each_is_in_the_audit_log_once(books: Books) -> None:
    caller = await books.new_caller()
    made = await credit(books, caller, 5)
    await credit(books, caller, 5)
    entries = await books.database.read(lambda c: audit_log.entries(c, subject=made.id))
    assert [(one.action, one.actor, one.at) for one in entries] == [
        ("adjustment.add", "test", made.created_at)
    ]
    assert entries[0].details["reason"] == "goodwill"
    listed = await adjusting(books).listed(workspace=caller.workspace_id)
    assert listed == [made]


FORGERIES = {
    "UPDATE adjustments SET nano_usd = nano_usd - 1 WHERE kind = 'refund'": "nano_usd",
    "UPDATE adjustments SET month = '2026-10' WHERE kind = 'refund'": "month",
    "UPDATE adjustments SET event_id = 'other' WHERE kind = 'refund'": "which is not there",
    # Both at once leave every sum as it was.
    "UPDATE adjustments SET nano_usd = CASE kind WHEN 'refund' THEN -399 ELSE -6 END": "nano_usd",
    "DELETE FROM adjustments WHERE kind = 'refund'": "in the audit log and nowhere else",
}


async def test_a_forged_or_missing_adjustment_is_found(books: Books) -> None:
    caller = await books.new_caller()
    await credit(books, caller, 5, "first")
    await refund(books, await spend(books, caller, 1000), 400)
    await books.database.write(unlock)
    for forgery, word in FORGERIES.items():
        await books.database.write(lambda c, statement=forgery: c.execute(text(statement)))
        found = await Reader(books.database).reconcile(books.spool)
        assert not found.is_clean
        assert any(word in one.problem for one in found.wrong_adjustments), (forgery, found.wrong_adjustments)


async def test_refunds_beyond_a_charge_are_found_by_themselves(books: Books) -> None:
    caller = await books.new_caller()
    event = await spend(books, caller, 1000)
    await refund(books, event, 400)
    row = (
        "INSERT INTO adjustments SELECT 'adj_forged', workspace_id, kind, -601, event_id, project_id, key_id, month, "
        "created_at, actor, reason, 'forged', refunds_rest FROM adjustments"
    )
    await books.database.write(lambda c: c.execute(text(row)))
    found = await Reader(books.database).reconcile(books.spool)
    problems = [one.problem for one in found.wrong_adjustments if one.adjustment_id == "adj_forged"]
    assert any("no entry" in one for one in problems) and any("in all" in one for one in problems)


def unlock(connection: Any) -> None:
    """As somebody does who may alter the tables."""
    if connection.dialect.name == "sqlite":
        for verb in ("update", "delete"):
            connection.execute(text(f"DROP TRIGGER adjustments_no_{verb}"))
    else:
        connection.execute(text("ALTER TABLE adjustments DISABLE TRIGGER adjustments_no_change"))


async def test_balances_are_rebuilt_with_adjustments(books: Books) -> None:
    caller = await books.new_caller()
    await adjust(books, caller, 50, "up")
    await credit(books, caller, 20)
    edit = "UPDATE workspaces SET credited_nano_usd = 7, posted_nano_usd = 1, month_posted_nano_usd = 0"
    await books.database.write(lambda c: c.execute(text(edit)))
    assert {one.figure for one in await books.differences()} == {"credited", "posted", "month_posted"}
    await Reader(books.database).rebuild(actor="test", now=books.now)
    assert await sums(books, caller) == (50, 20, 30)


async def test_a_statement_has_adjustments_in_lines_of_their_own_and_adds_up(books: Books) -> None:
    caller = await books.new_caller()
    event = await spend(books, caller, 1000)
    await credit(books, caller, 100, "a")
    await adjust(books, caller, 30, "b")
    await refund(books, event, 500, "c")
    found = await Reader(books.database).statement(caller.workspace_id, "2026-11")
    # The database's clock stands still here, so they are all of one moment.
    assert {(one.kind, one.nano_usd) for one in found.adjustments} == {
        ("credit", -100),
        ("adjustment", 30),
        ("refund", -500),
    }
    assert (found.used_nano_usd, found.adjusted_nano_usd) == (1000, -570)
    closing = (
        found.opening.owed_nano_usd + found.used_nano_usd + found.adjusted_nano_usd - found.paid_nano_usd
    )
    assert found.closing.owed_nano_usd == closing == 430


async def test_the_event_of_a_request_is_the_one_of_its_workspace_that_was_charged(books: Books) -> None:
    mine, theirs = await books.new_caller(), await books.new_caller()
    free, charged = await spend(books, mine, 0, "chat-1"), await spend(books, mine, 70, "chat-1")
    await spend(books, theirs, 70, "chat-1")
    only_free = await spend(books, mine, 0, "free-1")
    find = adjusting(books).event_of_request
    assert await find(mine.workspace_id, "chat-1") == charged != free
    assert await find(mine.workspace_id, "free-1") == only_free
    for request_id in ("chat-2", "CHAT-1", "chat-1\x00", ""):
        with pytest.raises(UnknownRequest, match="since 2026-10"):
            await find(mine.workspace_id, request_id)
    with pytest.raises(UnknownAccount):
        await find("nobody", "chat-1")


async def test_several_charged_events_of_a_request_are_named_and_none_is_taken(books: Books) -> None:
    caller = await books.new_caller()
    events = [await spend(books, caller, cost, "twice") for cost in (5, 7)]
    with pytest.raises(AmbiguousRequest) as refused:
        await adjusting(books).event_of_request(caller.workspace_id, "twice")
    assert all(event in str(refused.value) for event in events)


async def test_a_request_is_looked_for_in_the_last_35_days_unless_asked_otherwise(books: Books) -> None:
    caller, find = await books.new_caller(), adjusting(books).event_of_request
    event, made = await spend(books, caller, 5, "old"), books.clock.moment
    await books.at(made + timedelta(days=35))
    assert await find(caller.workspace_id, "old") == event
    await books.at(made + timedelta(days=35, seconds=1))
    with pytest.raises(UnknownRequest):
        await find(caller.workspace_id, "old")
    assert await find(caller.workspace_id, "old", since=made) == event
