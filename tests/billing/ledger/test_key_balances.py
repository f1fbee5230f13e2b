"""Keys with a spend limit: held and charged with their workspace, never past either limit, proved by `reconcile`."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from billing.accounts.keys import KeyChange, KeyTerms
from billing.caller import Caller
from billing.errors import QuotaExceeded

if TYPE_CHECKING:
    from tests.billing.conftest import Books


async def limited_caller(books: Books, terms: KeyTerms, *, beside: Caller | None = None) -> Caller:
    """A caller whose key has these terms, in a workspace of its own or in that of another."""
    other = beside or await books.new_caller()
    _, token = await books.accounts.keys.create(other.project_id, "limited", terms=terms, now=books.now)
    return await books.accounts.authenticate(token, now=books.now)


async def balance(books: Books, caller: Caller) -> tuple[int, int, int]:
    """Posted, held and posted this month, as the key's row has them, after they were found to add up."""
    await proven(books)
    found = (await books.accounts.keys.find(caller.key_id)).balance
    assert found is not None
    return found.posted_nano_usd, found.held_nano_usd, found.month_posted_nano_usd


async def proven(books: Books) -> None:
    assert await books.differences() == []


async def test_a_limited_key_is_held_and_charged_with_its_workspace(books: Books) -> None:
    caller = await limited_caller(books, KeyTerms(spend_limit_nano_usd=2500))
    hold = await books.hold(caller)
    assert await balance(books, caller) == (0, 1000, 0)
    await books.settle(hold, 400)
    given_back = await books.hold(caller)
    await books.ledger.release(given_back, now=books.now)
    assert await balance(books, caller) == (400, 0, 400)
    assert await books.money(caller) == (400, 0)


@pytest.mark.parametrize("limit", ["spend_limit_nano_usd", "monthly_limit_nano_usd"])
async def test_a_refusal_says_that_it_is_the_keys_limit_and_holds_nothing(books: Books, limit: str) -> None:
    unlimited = await books.new_caller()
    caller = await limited_caller(books, KeyTerms(**{limit: 1500}), beside=unlimited)
    await books.hold(caller)
    with pytest.raises(QuotaExceeded, match=r"^key quota exceeded") as refused:
        await books.hold(caller)
    assert refused.value.left_nano_usd == 500
    assert await balance(books, caller) == (0, 1000, 0)
    assert (await books.money(caller))[1] == 1000
    # Another key of the same workspace goes on.
    await books.settle(await books.hold(unlimited))


async def test_what_many_requests_at_once_hold_stays_within_the_keys_limit(books: Books) -> None:
    caller = await limited_caller(books, KeyTerms(spend_limit_nano_usd=5000))
    asked = await asyncio.gather(*(books.hold(caller) for _ in range(12)), return_exceptions=True)
    holds = [one for one in asked if not isinstance(one, BaseException)]
    assert len(holds) == 5
    await asyncio.gather(*(books.settle(hold, 1000) for hold in holds))
    assert await balance(books, caller) == (5000, 0, 5000)


async def test_what_exceeds_the_hold_is_charged_as_far_as_the_key_has_room(books: Books) -> None:
    caller = await limited_caller(books, KeyTerms(spend_limit_nano_usd=1600))
    settled = await books.settle(await books.hold(caller), 2000)
    assert settled.written_off_nano_usd == 400
    assert await balance(books, caller) == (1600, 0, 1600)


async def test_an_event_that_is_posted_twice_is_charged_to_the_key_once(books: Books) -> None:
    caller = await limited_caller(books, KeyTerms(spend_limit_nano_usd=5000))
    hold = await books.hold(caller)
    await books.settle(hold, 400)
    await books.settle(hold, 400)
    assert await balance(books, caller) == (400, 0, 400)


async def test_a_limit_that_is_set_later_starts_from_the_keys_events_and_open_holds(books: Books) -> None:
    caller = await books.new_caller()
    await books.settle(await books.hold(caller), 400)
    later = await books.clock_in_the_next_month()
    await books.settle(await books.hold(caller), 300)
    open_hold = await books.hold(caller)
    changed = await books.accounts.keys.change(
        caller.key_id, KeyChange({"spend_limit_nano_usd": 2000}), now=later
    )
    assert changed.balance is not None and changed.balance.posted_nano_usd == 700
    assert await balance(books, caller) == (700, 1000, 300)
    with pytest.raises(QuotaExceeded):
        await books.hold(caller)
    await books.settle(open_hold, 500)
    assert await balance(books, caller) == (1200, 0, 800)


async def test_without_its_limit_a_key_is_not_counted_and_with_a_new_one_counted_anew(books: Books) -> None:
    caller = await limited_caller(books, KeyTerms(monthly_limit_nano_usd=5000))
    await books.settle(await books.hold(caller), 400)
    hold = await books.hold(caller)
    ended = await books.accounts.keys.change(
        caller.key_id, KeyChange({"monthly_limit_nano_usd": None}), now=books.now
    )
    assert ended.balance is None
    assert not (await has_limited_keys(books, caller))
    await books.settle(hold, 600)
    await proven(books)
    await books.accounts.keys.change(caller.key_id, KeyChange({"spend_limit_nano_usd": 5000}), now=books.now)
    assert await balance(books, caller) == (1000, 0, 1000)


async def has_limited_keys(books: Books, caller: Caller) -> bool:
    asking = text("SELECT has_limited_keys FROM workspaces WHERE id = :id")
    return bool(
        await books.database.read(lambda c: c.execute(asking, {"id": caller.workspace_id}).scalar_one())
    )


async def test_limits_set_while_requests_run_leave_books_that_agree(books: Books) -> None:
    caller = await books.new_caller()

    async def spend() -> None:
        for _ in range(6):
            await books.settle(await books.hold(caller), 400)

    async def set_limits() -> None:
        for limit in (10**6, None, 10**7):
            change = KeyChange({"spend_limit_nano_usd": limit})
            await books.accounts.keys.change(caller.key_id, change, now=books.now)

    await asyncio.gather(spend(), set_limits(), spend(), spend())
    assert await balance(books, caller) == (18 * 400, 0, 18 * 400)


async def test_a_month_has_its_own_limit_and_is_found_again_by_a_clock_that_goes_back(books: Books) -> None:
    caller = await limited_caller(books, KeyTerms(monthly_limit_nano_usd=1500))
    await books.settle(await books.hold(caller), 1000)
    later = await books.clock_in_the_next_month()
    await books.settle(await books.hold(caller, now=later), 700, now=later)
    assert await balance(books, caller) == (1700, 0, 700)
    await books.at(books.now)
    with pytest.raises(QuotaExceeded, match="key quota exceeded"):
        await books.hold(caller, now=books.now)
    await books.settle(await books.hold(caller, 400, now=books.now), 400, now=books.now)
    assert await balance(books, caller) == (2100, 0, 1400)


async def test_held_money_is_charged_to_a_month_in_which_the_key_has_room(books: Books) -> None:
    caller = await limited_caller(books, KeyTerms(monthly_limit_nano_usd=1500))
    await books.settle(await books.hold(caller), 1000)
    later = await books.clock_in_the_next_month()
    held = await books.hold(caller, now=later)
    await books.settle(held, 1000, now=books.now)
    assert await balance(books, caller) == (2000, 0, 1000)


async def test_a_lease_that_ended_gives_the_keys_money_back(books: Books) -> None:
    caller = await limited_caller(books, KeyTerms(spend_limit_nano_usd=5000))
    await books.hold(caller)
    await books.hold(await limited_caller(books, KeyTerms(spend_limit_nano_usd=5000), beside=caller))
    await books.at(books.now + timedelta(days=1))
    await books.sweep()
    assert await balance(books, caller) == (0, 0, 0)


async def test_rotated_keys_share_one_limit_and_one_balance(books: Books) -> None:
    caller = await limited_caller(books, KeyTerms(spend_limit_nano_usd=2500))
    await books.settle(await books.hold(caller), 1000)
    made, token, _ = await books.accounts.keys.rotate(
        caller.key_id, overlap=timedelta(hours=1), now=books.now
    )
    new = await books.accounts.authenticate(token, now=books.now)
    assert (made.limits_key_id, new.limits_key_id) == (caller.key_id, caller.key_id)
    await books.hold(new)
    assert await balance(books, new) == await balance(books, caller) == (1000, 1000, 1000)
    for one in (caller, new):
        with pytest.raises(QuotaExceeded):
            await books.hold(one)
    again, _, _ = await books.accounts.keys.rotate(made.id, overlap=timedelta(0), now=books.now)
    assert again.limits_key_id == caller.key_id
    await books.accounts.keys.change(again.id, KeyChange({"spend_limit_nano_usd": 9000}), now=books.now)
    await books.hold(caller)
    assert await balance(books, caller) == (1000, 2000, 1000)


@pytest.mark.parametrize("own_end", [None, timedelta(days=90)])
async def test_a_key_that_is_rotated_again_in_its_overlap_gives_one_that_ends_as_it_would_have(
    books: Books, own_end: timedelta | None
) -> None:
    end = None if own_end is None else books.now + own_end
    caller = await limited_caller(books, KeyTerms(expires_at=end))
    rotate = books.accounts.keys.rotate
    for _ in range(3):
        made, _, old = await rotate(caller.key_id, overlap=timedelta(hours=1), now=books.now)
        assert made.terms.expires_at == end
        assert old.terms.expires_at is not None and old.terms.expires_at < books.now + timedelta(hours=2)
    # What an operator sets after a rotation is meant.
    soon = books.now + timedelta(minutes=30)
    await books.accounts.keys.change(caller.key_id, KeyChange({"expires_at": soon}), now=books.now)
    made, _, _ = await rotate(caller.key_id, overlap=timedelta(hours=1), now=books.now)
    assert made.terms.expires_at == soon


async def test_a_wrong_balance_of_a_key_is_named_and_rebuilt(books: Books) -> None:
    caller = await limited_caller(books, KeyTerms(spend_limit_nano_usd=5000))
    await books.settle(await books.hold(caller), 400)
    wrong = text("UPDATE api_keys SET posted_nano_usd = 399, held_nano_usd = 7 WHERE id = :id")
    await books.database.write(lambda c: c.execute(wrong, {"id": caller.key_id}))
    reader = books.reader()
    found = await reader.reconcile(books.spool)
    assert not found.is_clean
    assert {(one.figure, one.stored_nano_usd, one.rebuilt_nano_usd) for one in found.differences} == {
        (f"posted of key {caller.key_id}", 399, 400),
        (f"held of key {caller.key_id}", 7, 0),
    }
    await reader.rebuild(actor="test", now=books.now)
    assert (await reader.reconcile(books.spool)).differences == []
    assert await balance(books, caller) == (400, 0, 400)


async def test_a_key_without_a_limit_costs_no_statement_more(books: Books) -> None:
    """Its row is not touched: what is on it can be anything."""
    caller = await books.new_caller()
    await books.settle(await books.hold(caller), 400)
    found = await books.accounts.keys.find(caller.key_id)
    assert found.balance is None and replace(found, last_used_at=None).terms == KeyTerms()
    await proven(books)
