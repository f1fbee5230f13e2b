"""Usage, statements, the proof that the books add up, and balances made anew from the rows below them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from billing.accounts import audit_log
from billing.adjustments.adjustment import MAX_NANO_USD
from billing.adjustments.adjustments import Adjustments
from billing.books.books import Books as Reader
from billing.collections.collector import Collector
from billing.errors import RebuildRefused, UnknownAccount
from billing.ledger.ledger import Ledger
from billing.price import Cost, ModelPrice, cost
from billing.store.database import FakeOutageDatabase
from billing.store.dates import month_bounds
from billing.usage import UsageFigures, Used
from tests.billing.chats import forge

if TYPE_CHECKING:
    from billing.caller import Caller
    from billing.usage import Outcome
    from tests.billing.conftest import Books

OCTOBER = datetime(2026, 10, 31, 23, 59, 59, 999999, tzinfo=UTC)
NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC)
DECEMBER = datetime(2026, 12, 1, tzinfo=UTC)


async def use(
    books: Books, caller: Caller, tokens: int, *, outcome: Outcome = "completed", now: datetime | None = None
) -> int:
    """One request of so many prompt tokens, priced as the server does; its cost."""
    moment = now or books.now
    hold = await books.hold(caller, 10**9, now=moment)
    price_list = await books.ledger.current_prices()
    price = price_list.of("model-a")
    assert price is not None
    due = cost(price, prompt_tokens=tokens, completion_tokens=1, minimum=outcome != "failed")
    figures = UsageFigures(prompt_tokens=tokens, completion_tokens=1, cached_tokens=0, stream=False)
    await books.ledger.settle(hold, figures=figures, cost=due, outcome=outcome, now=moment)
    return due.nano_usd


async def edit(books: Books, statement: str, **values: object) -> None:
    await books.database.write(lambda c: c.execute(text(statement), values))


@pytest.mark.parametrize(
    "month", ["2026-13", "2026-00", "2026-1", "26-01", "", "0000-01", "9999-12", "2026-11 "]
)
def test_a_month_that_is_none_is_refused(month: str) -> None:
    with pytest.raises(ValueError, match="is not a month, such as 2026-11"):
        month_bounds(month)


def test_a_month_ends_where_the_next_begins() -> None:
    assert month_bounds("2026-12") == (DECEMBER, datetime(2027, 1, 1, tzinfo=UTC))


async def test_usage_is_added_up_by_what_is_asked(books: Books) -> None:
    one, two = await books.new_caller(), await books.new_caller()
    day = timedelta(days=1)
    costs = [
        await use(books, one, 10**6),
        await use(books, one, 2 * 10**6, now=books.now + day),
        await use(books, two, 3 * 10**6),
    ]
    (total,) = await books.usage([])
    assert (total.group, total.requests, total.prompt_tokens, total.cost_nano_usd) == (
        {},
        3,
        6 * 10**6,
        sum(costs),
    )
    by_workspace = {
        line.group["workspace_id"]: line.cost_nano_usd for line in await books.usage(["workspace"])
    }
    assert by_workspace == {one.workspace_id: costs[0] + costs[1], two.workspace_id: costs[2]}
    by_day = {
        (line.group["day"], line.group["model"]): line.requests
        for line in await books.usage(["day", "model"])
    }
    assert by_day == {("2026-11-20", "model-a"): 2, ("2026-11-21", "model-a"): 1}
    (mine,) = await books.usage(["project", "key", "month"], workspace=two.workspace_id)
    assert dict(mine.group) == {
        "project": "project",
        "project_id": two.project_id,
        "key": "key",
        "key_id": two.key_id,
        "month": "2026-11",
    }
    (later,) = await books.usage(["workspace"], since=books.now + day)
    assert later.cost_nano_usd == costs[1]
    (earlier,) = await books.usage([], until=books.now + day)
    assert earlier.cost_nano_usd == costs[0] + costs[2]
    (nothing,) = await books.usage([], until=books.now)
    assert (nothing.requests, nothing.cost_nano_usd) == (0, 0)
    assert await books.usage(["model"], until=books.now) == []
    with pytest.raises(UnknownAccount):
        await books.usage([], workspace="nobody")


async def test_a_day_is_a_day_in_utc(books: Books) -> None:
    caller = await books.new_caller(now=OCTOBER)
    await use(books, caller, 1, now=OCTOBER)
    await use(books, caller, 1, now=NOVEMBER)
    days = [line.group["day"] for line in await books.usage(["day"])]
    assert days == ["2026-10-31", "2026-11-01"]


async def test_a_statement_carries_a_balance_from_month_to_month(books: Books) -> None:
    caller = await books.new_caller(now=OCTOBER)
    mine, reader = Collector(books.database, actor="test"), Reader(books.database)
    october = await use(books, caller, 10**6, now=OCTOBER)
    first = await mine.cut_now(caller.workspace_id, now=OCTOBER)
    november = await use(books, caller, 2 * 10**6, now=NOVEMBER) + await use(books, caller, 3, now=books.now)
    second = await mine.cut_now(caller.workspace_id, now=books.now)
    assert first and second and first.nano_usd < october
    await mine.mark(first.id, "paid", now=books.now)
    await mine.mark(second.id, "void", now=DECEMBER)
    await use(books, caller, 10**6, now=DECEMBER)

    before, month, after = [
        await reader.statement(caller.workspace_id, name) for name in ("2026-10", "2026-11", "2026-12")
    ]

    assert (before.opening.owed_nano_usd, before.closing.owed_nano_usd) == (0, october)
    assert before.closing.asked_nano_usd == first.nano_usd
    assert month.opening == before.closing
    assert (month.used_nano_usd, month.paid_nano_usd) == (november, first.nano_usd)
    assert month.closing.owed_nano_usd == october + november - first.nano_usd
    assert month.closing.asked_nano_usd == second.nano_usd
    assert [one.id for one in month.cut] == [second.id] and [one.id for one in month.closed] == [first.id]
    assert [(line.group["project"], line.group["model"], line.requests) for line in month.usage] == [
        ("project", "model-a", 2)
    ]
    assert after.opening == month.closing
    assert after.closing.asked_nano_usd == 0
    assert after.closing.uncollected_nano_usd == after.closing.owed_nano_usd
    for one in (before, month, after):
        assert one.opening.owed_nano_usd + one.used_nano_usd - one.paid_nano_usd == one.closing.owed_nano_usd


async def test_books_in_order_reconcile(books: Books) -> None:
    caller = await books.new_caller()
    for tokens, outcome in ((1, "completed"), (1, "failed"), (10**6, "disconnected"), (10**6, "completed")):
        await use(books, caller, tokens, outcome=outcome)  # type: ignore[arg-type]
    await books.hold(caller, 77)
    await Collector(books.database, actor="test").cut_due(threshold_cents=1, now=books.now)
    found = await Reader(books.database).reconcile(books.spool)
    assert found.is_clean and found.spool_waiting == found.spool_refused == 0
    totals = found.totals
    assert (totals.events, totals.held_nano_usd, totals.collected_nano_usd > 0) == (4, 77, True)


@pytest.mark.parametrize("figure", ["posted", "held", "month_posted", "collected"])
async def test_a_balance_that_was_edited_is_found_and_rebuilt(books: Books, figure: str) -> None:
    caller, other = await books.new_caller(), await books.new_caller()
    for one in (caller, other):
        await use(books, one, 10**6)
        await books.hold(one, 500)
    await Collector(books.database, actor="test").cut_due(threshold_cents=1, now=books.now)
    before = await books.accounts.list_workspaces()
    await edit(
        books,
        f"UPDATE workspaces SET {figure}_nano_usd = {figure}_nano_usd + 3 WHERE id = :id",
        id=caller.workspace_id,
    )
    reader = Reader(books.database)
    (difference,) = (await reader.reconcile(books.spool)).differences
    assert (difference.workspace_id, difference.figure) == (caller.workspace_id, figure)
    assert difference.stored_nano_usd - difference.rebuilt_nano_usd == 3
    assert await books.differences() == [difference]

    assert await reader.rebuild(actor="test", now=books.now) == [difference]

    assert (await reader.reconcile(books.spool)).is_clean
    assert await books.accounts.list_workspaces() == before
    entry = (await reader.audit_log(workspace=caller.workspace_id))[-1]
    assert (entry.action, entry.actor) == ("workspace.rebuild", "test")
    assert entry.details == {f"{figure}_nano_usd": [difference.stored_nano_usd, difference.rebuilt_nano_usd]}
    assert await reader.rebuild(actor="test", now=books.now) == []


async def test_a_rebuild_that_cannot_be_right_changes_nothing(books: Books) -> None:
    caller, other = await books.new_caller(), await books.new_caller()
    for one in (caller, other):
        await use(books, one, 10**6)
    everything = "UPDATE workspaces SET posted_nano_usd = posted_nano_usd + 1000000000"
    await edit(books, everything)
    await Collector(books.database, actor="test").cut_now(caller.workspace_id, now=books.now)
    reader = Reader(books.database)
    with pytest.raises(RebuildRefused, match=f"workspace {caller.workspace_id}: its collections are"):
        await reader.rebuild(actor="test", now=books.now)
    assert len((await reader.reconcile(books.spool)).differences) == 2


async def test_a_rebuild_in_the_midst_of_settling_loses_nothing(books: Books) -> None:
    caller = await books.new_caller()
    settled = asyncio.Event()

    async def rebuilding() -> None:
        while not settled.is_set():
            await Reader(books.database).rebuild(actor="test", now=books.now)

    running = asyncio.create_task(rebuilding())
    costs = await asyncio.gather(*(use(books, caller, tokens) for tokens in range(1, 41)))
    settled.set()
    await running
    assert await books.money(caller) == (sum(costs), 0)


@pytest.mark.parametrize(
    ("outcome", "subtotal", "charged", "applied"),
    [
        ("completed", 750, 20_001, True),
        ("completed", 750, 750, False),
        ("failed", 750, 20_000, True),
        ("completed", 749, 20_000, True),
        ("disconnected", 750, 0, False),
    ],
)
async def test_an_event_that_does_not_cost_what_it_should_is_found(
    books: Books, outcome: Outcome, subtotal: int, charged: int, applied: bool
) -> None:

    caller = await books.new_caller()
    await use(books, caller, 10**6)
    hold = await books.hold(caller)
    wrong = Cost(subtotal, charged, applied)
    figures = UsageFigures(prompt_tokens=1, completion_tokens=1, cached_tokens=0, stream=False)
    await books.ledger.settle(hold, figures=figures, cost=wrong, outcome=outcome, now=books.now)
    found = await Reader(books.database).reconcile(books.spool)
    assert found.differences == [] and not found.is_clean
    (event,) = found.mispriced
    assert (event.event_id, event.charged) == (hold.event_id, wrong)
    assert event.due.nano_usd == (750 if outcome == "failed" else 20_000)


async def test_cached_input_is_proved_at_its_own_price(books: Books) -> None:
    price = ModelPrice("model-a", 100_000, 400_000, 0, cached_input_micro_usd_per_mtok=10_000)
    books.pricing_version = await books.ledger.publish_prices([price], now=books.now)
    caller = await books.new_caller()
    hold = await books.hold(caller, 10**9)
    figures = UsageFigures(prompt_tokens=10**6, completion_tokens=10, cached_tokens=900_000, stream=False)
    due = cost(price, prompt_tokens=10**6, completion_tokens=10, cached_tokens=900_000, minimum=True)
    await books.ledger.settle(hold, figures=figures, cost=due, outcome="completed", now=books.now)
    assert due.nano_usd == 100_000 * 100 + 900_000 * 10 + 10 * 400
    assert (await Reader(books.database).reconcile(books.spool)).is_clean

    await forge(books, "UPDATE usage_events SET cached_tokens = cached_tokens - 1")
    (event,) = (await Reader(books.database).reconcile(books.spool)).mispriced
    assert (event.event_id, event.charged) == (hold.event_id, due)
    assert event.due.nano_usd == due.nano_usd + 90


async def test_a_part_of_the_price_is_proved_by_the_part_that_its_event_names(books: Books) -> None:
    caller = await books.new_caller()
    hold = await books.hold(caller, 10**9)
    half = ModelPrice("model-a", 150_000, 600_000, 20_000, ppm=500_000)
    figures = UsageFigures(prompt_tokens=10**6, completion_tokens=10, cached_tokens=0, stream=False)
    due = cost(half, prompt_tokens=10**6, completion_tokens=10, minimum=True)
    used = Used(hold, figures, due, half.ppm)
    await books.ledger.settle_all([used], outcome="completed", now=books.now)
    assert due.nano_usd == (10**6 * 150 + 10 * 600) // 2
    assert (await Reader(books.database).reconcile(books.spool)).is_clean

    await forge(books, "UPDATE usage_events SET price_ppm = 1000000")
    (event,) = (await Reader(books.database).reconcile(books.spool)).mispriced
    assert (event.charged, event.due.nano_usd) == (due, 2 * due.nano_usd)


async def test_tokens_times_price_past_64_bits_are_exact(books: Books) -> None:

    dear = ModelPrice("model-a", 10**12, 10**12, 0)
    books.pricing_version = await books.ledger.publish_prices([dear], now=books.now)
    await use(books, await books.new_caller(), 10**9 - 1)
    assert (await Reader(books.database).reconcile(books.spool)).is_clean


async def test_amounts_of_workspaces_that_pass_64_bits_together_are_added_up(books: Books) -> None:
    made, amounts = Adjustments(books.database, actor="test"), (MAX_NANO_USD, MAX_NANO_USD, MAX_NANO_USD - 1)
    for workspace in [(await books.new_caller()).workspace_id for _ in range(4)]:
        for number, amount in enumerate(amounts):
            await made.credit(workspace, nano_usd=amount, reason="r", idempotency_key=str(number))
    found = await Reader(books.database).reconcile(books.spool, full=True)
    assert found.is_clean
    assert found.totals.uncollected_nano_usd == -4 * sum(amounts) < -(2**63)


async def test_what_waits_in_the_spool_is_mentioned(books: Books) -> None:

    caller = await books.new_caller()
    outage = FakeOutageDatabase(books.database)
    ledger = Ledger(outage, books.spool)
    holds = [await books.hold(caller) for _ in range(3)]
    outage.is_down = True
    books.ledger, kept = ledger, books.ledger
    for hold in holds:
        await books.settle(hold)
    books.ledger = kept
    found = await Reader(books.database).reconcile(books.spool)
    assert (found.is_clean, found.spool_waiting, found.spool_refused) == (True, 3, 0)
    await books.spool.set_aside([holds[0].event_id], "refused for a test")
    found = await Reader(books.database).reconcile(books.spool)
    assert (found.is_clean, found.spool_waiting, found.spool_refused) == (False, 2, 1)


async def test_account_changes_are_in_the_audit_log_without_secrets(books: Books) -> None:

    workspace = await books.accounts.create_workspace("acme", now=books.now)
    await books.accounts.change_workspace("acme", {"spend_limit_nano_usd": 5, "monthly_limit_nano_usd": None})
    await books.accounts.change_workspace("acme", {"billing_enabled": True})
    project = await books.accounts.create_project("acme", "search", now=books.now)
    await books.accounts.change_project("acme/search", {"max_in_flight": 2})
    key, token = await books.accounts.keys.create("acme/search", "laptop", now=books.now)
    await books.accounts.keys.revoke(key.id, now=books.now)
    await books.accounts.keys.revoke(key.id, now=books.now + timedelta(days=1))
    entries = await Reader(books.database).audit_log(workspace="acme")
    assert [(entry.action, entry.subject) for entry in entries] == [
        ("workspace.create", workspace.id),
        ("workspace.change", workspace.id),
        ("project.create", project.id),
        ("project.change", project.id),
        ("key.create", key.id),
        ("key.revoke", key.id),
    ]
    assert {(entry.actor, entry.workspace_id) for entry in entries} == {("server", workspace.id)}
    assert entries[1].details == {"spend_limit_nano_usd": [None, 5]}
    assert entries[3].details == {"max_in_flight": [None, 2]}
    assert token.split("_")[2] not in str(entries) and "digest" not in str(entries)
    with pytest.raises(UnknownAccount):
        await Reader(books.database).audit_log(workspace="nobody")


async def test_a_change_that_is_refused_leaves_no_entry(books: Books) -> None:
    await books.accounts.create_workspace("acme", now=books.now)
    with pytest.raises(Exception, match="already exists"):
        await books.accounts.create_workspace("acme", now=books.now)
    entries = await books.database.read(audit_log.entries)
    assert [entry.action for entry in entries] == ["workspace.create"]


async def test_entries_are_narrowed_by_time_and_the_last_are_given(books: Books) -> None:
    for day in range(3):
        await books.accounts.create_workspace(f"w{day}", now=books.now + timedelta(days=day))
    reader, day = Reader(books.database), timedelta(days=1)
    names = [entry.details["name"] for entry in await reader.audit_log(since=books.now + day)]
    assert names == ["w1", "w2"]
    assert [entry.details["name"] for entry in await reader.audit_log(until=books.now + day)] == ["w0"]
    assert [entry.details["name"] for entry in await reader.audit_log(limit=2)] == ["w1", "w2"]
