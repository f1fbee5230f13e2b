"""The few numbers that metrics show of a ledger, on both databases."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from billing.books.usage_report import LINE_STATES, UNFINISHED, glance, month_of_tenants
from billing.store.batch_tables import batch_lines, batches
from tests.billing.books.test_books import DECEMBER, use

if TYPE_CHECKING:
    from tests.billing.conftest import Books


async def test_an_empty_ledger_has_every_number_at_zero(books: Books) -> None:
    found = await books.database.read(glance)
    assert found.batches == dict.fromkeys(UNFINISHED, 0)
    assert found.lines == dict.fromkeys(LINE_STATES, 0)
    assert (found.limited, found.spent) == (0, {80: 0, 100: 0})


async def test_workspaces_count_by_how_much_of_either_limit_they_have_spent(books: Books) -> None:
    callers = [
        await books.new_caller(spend_limit_nano_usd=1000),
        await books.new_caller(spend_limit_nano_usd=1000),
        await books.new_caller(monthly_limit_nano_usd=1000, spend_limit_nano_usd=10**15),
        await books.new_caller(spend_limit_nano_usd=2**62),
        await books.new_caller(),
    ]
    for caller, spent in zip(callers, (799, 800, 1000, 10**12, 10**12), strict=True):
        await books.settle(await books.hold(caller, spent), spent)
    found = await books.database.read(glance)
    assert (found.limited, found.spent) == (4, {80: 2, 100: 1})
    # Another month: what was spent of a monthly limit is nothing again.
    await books.at(DECEMBER + timedelta(days=1))
    assert (await books.database.read(glance)).spent == {80: 1, 100: 0}


async def test_a_month_names_the_workspaces_that_cost_most_and_adds_up_the_others(books: Books) -> None:
    callers = [await books.new_caller() for _ in range(4)]
    costs = [
        await use(books, caller, tokens)
        for caller, tokens in zip(callers, (10_000, 400_000, 30_000, 20_000), strict=True)
    ]
    names = [(await books.accounts.find_workspace(caller.workspace_id)).name for caller in callers]
    named, others = await books.database.read(lambda c: month_of_tenants(c, 2))
    assert list(named) == [names[1], names[2]]
    assert [line.prompt_tokens for line in named.values()] == [400_000, 30_000]
    assert (others.requests, others.prompt_tokens, others.cost_nano_usd) == (2, 30_000, costs[0] + costs[3])


async def test_a_revoked_workspace_is_not_named_whatever_it_has_cost(books: Books) -> None:
    kept, gone = await books.new_caller(), await books.new_caller()
    await use(books, kept, 10)
    await use(books, gone, 100_000)
    name = (await books.accounts.find_workspace(gone.workspace_id)).name
    await books.accounts.revoke_workspace(name, now=books.now)
    named, others = await books.database.read(lambda c: month_of_tenants(c, 5))
    assert name not in named and len(named) == 1
    assert others.prompt_tokens == 100_000


@pytest.mark.parametrize("cleared", [False, True])
async def test_batches_count_until_they_have_ended_and_their_lines_by_state(
    books: Books, cleared: bool
) -> None:
    caller = await books.new_caller()
    row = {column.name: column.type.python_type() for column in batches.columns if not column.nullable}
    row |= {
        "id": "batch_1",
        "project_id": caller.project_id,
        "key_id": caller.key_id,
        "status": "in_progress",
        "cleared": cleared,
    }
    lines = [
        {column.name: column.type.python_type() for column in batch_lines.columns if not column.nullable}
        | {"batch_id": "batch_1", "number": number, "custom_id": str(number), "state": state}
        for number, state in enumerate(("waiting", "waiting", "completed", "failed", "expired"))
    ]

    await books.database.write(
        lambda c: (c.execute(batches.insert(), row), c.execute(batch_lines.insert(), lines))
    )
    found = await books.database.read(glance)
    assert found.batches["in_progress"] == int(not cleared)
    assert found.lines == {"waiting": 2, "completed": 1, "failed": 1}
