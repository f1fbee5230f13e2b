"""Which month a charge counts to is the database's to say, and no jump of its clock switches a limit off."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from billing.books.books import Books as Reader
from billing.errors import QuotaExceeded
from billing.price import Cost
from billing.usage import UsageFigures

if TYPE_CHECKING:
    from tests.billing.conftest import Books

OCTOBER, NOVEMBER, DECEMBER = (datetime(2026, month, 15, tzinfo=UTC) for month in (10, 11, 12))


async def test_a_clock_that_was_a_month_ahead_once_leaves_the_months_limit_on(books: Books) -> None:
    caller = await books.new_caller(monthly_limit_nano_usd=1000)
    await books.settle(await books.hold(caller, 600, now=NOVEMBER), 600)
    await books.settle(await books.hold(caller, 5, now=DECEMBER), 5)

    with pytest.raises(QuotaExceeded) as caught:
        await books.hold(caller, 401, now=NOVEMBER)
    assert (caught.value.span, caught.value.committed_nano_usd) == ("month", 600)
    await books.settle(await books.hold(caller, 400, now=NOVEMBER), 400)
    with pytest.raises(QuotaExceeded):
        await books.hold(caller, 1, now=NOVEMBER)

    # And when that month comes, what the jump charged to it is still there.
    with pytest.raises(QuotaExceeded):
        await books.hold(caller, 996, now=DECEMBER)
    await books.hold(caller, 995, now=DECEMBER)
    assert await books.money(caller) == (1005, 995)


async def test_a_charge_after_the_clock_went_back_leaves_the_other_months_sum_alone(books: Books) -> None:
    caller = await books.new_caller(monthly_limit_nano_usd=1000)
    late = await books.hold(caller, 500, now=NOVEMBER)
    await books.settle(await books.hold(caller, 100, now=DECEMBER), 100)
    await books.settle(late, 500, now=NOVEMBER)
    assert await by_month(books) == {"2026-11": 500, "2026-12": 100}
    assert await books.money(caller) == (600, 0)


async def test_money_held_in_another_month_is_charged_where_it_was_found_free(books: Books) -> None:
    """Else a clock that goes there and back would let a month's limit be passed."""
    caller = await books.new_caller(monthly_limit_nano_usd=1000)
    await books.settle(await books.hold(caller, 900, now=NOVEMBER), 900)
    held = await books.hold(caller, 1000, now=DECEMBER)
    settled = await books.settle(held, 1000, now=NOVEMBER)
    assert settled.written_off_nano_usd == 0
    assert await by_month(books) == {"2026-11": 900, "2026-12": 1000}
    assert await books.money(caller) == (1900, 0)


@pytest.mark.parametrize("seed", range(6))
async def test_no_month_is_charged_more_than_its_limit_wherever_the_clock_goes(
    books: Books, seed: int
) -> None:
    rng = random.Random(seed)
    caller = await books.new_caller(monthly_limit_nano_usd=1000)
    held = []
    for _ in range(60):
        await books.at(rng.choice((OCTOBER, NOVEMBER, DECEMBER)))
        if held and rng.random() < 0.5:
            hold = held.pop(rng.randrange(len(held)))
            await books.settle(hold, rng.randrange(hold.amount_nano_usd + 100))
        else:
            try:
                held.append(await books.hold(caller, rng.randrange(1, 500)))
            except QuotaExceeded:
                continue
        sums = await by_month(books)
        assert all(amount <= 1000 for amount in sums.values()), sums
    # The rows that keep the sums say the same.
    assert await books.differences() == []


async def test_rebuilding_makes_the_sums_of_other_months_anew(books: Books) -> None:
    caller = await books.new_caller(monthly_limit_nano_usd=1000)
    for month in (OCTOBER, NOVEMBER, DECEMBER):
        await books.settle(await books.hold(caller, 300, now=month), 300)
    await books.database.write(lambda c: c.execute(text("DELETE FROM workspace_months")))
    reader = Reader(books.database)
    found = (await reader.reconcile(books.spool)).differences
    assert [(one.figure, one.stored_nano_usd, one.rebuilt_nano_usd) for one in found] == [
        ("2026-10", 0, 300),
        ("2026-11", 0, 300),
    ]
    assert await reader.rebuild(actor="test", now=books.now) == found
    assert await books.differences() == []


async def test_a_statement_counts_usage_to_the_month_that_charged_it(books: Books) -> None:
    caller = await books.new_caller()
    hold = await books.hold(caller, 500, now=NOVEMBER)
    # The server believes that it is November still.
    await books.at(DECEMBER)
    await books.ledger.settle(
        hold,
        figures=UsageFigures(prompt_tokens=1, completion_tokens=1, cached_tokens=0, stream=False),
        cost=Cost(500, 500, minimum_applied=False),
        outcome="completed",
        now=NOVEMBER,
    )
    reader = Reader(books.database)
    november = await reader.statement(caller.workspace_id, "2026-11")
    december = await reader.statement(caller.workspace_id, "2026-12")
    assert (november.used_nano_usd, december.used_nano_usd) == (0, 500)
    assert december.opening == november.closing
    (line,) = await books.usage(["month"], workspace=caller.workspace_id)
    assert line.group == {"month": "2026-12"}


async def by_month(books: Books) -> dict[str, int]:
    lines = await books.usage(["month"])
    return {line.group["month"]: line.cost_nano_usd for line in lines}
