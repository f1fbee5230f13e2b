"""Five hundred requests at once against a limit that pays for fifty: both databases, one server and three."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import text

from billing.store.database import open_database
from tests.faults.audit import check, settled
from tests.faults.client import Answer, Ask, send
from tests.faults.prices import PRICES
from tests.faults.run import WIDE_LIMITS
from tests.faults.world import LedgerKind, Machines, Setup, World, new_world

AT_ONCE, PAID_FOR = 500, 50
TIMEOUT_S = 120.0
# A machine that has too much to do may also refuse what it did not come to within the database's timeout.
REFUSALS = {"completed", "quota_exceeded", "ledger_unavailable", "limits_unavailable"}
TOKENS = 10
# Its prompts are free, and with `ignore_eos` a reply has all its tokens: the worst case, which is held, is the cost.
EXACT = "gamma"
# Here the hold is several times the cost, since a prompt's tokens are not known before they are counted.
BOUNDED = "alpha"


def setup(ledger: LedgerKind, ingresses: int, limit_nano_usd: int) -> Setup:
    shared = ingresses > 1
    return Setup(
        ledger=ledger,
        ingresses=ingresses,
        spend_limit_nano_usd=limit_nano_usd,
        on_redis=shared,
        limits=WIDE_LIMITS if shared else Setup.limits,
    )


def asks(world: World, model: str, count: int, first: int = 0) -> list[Ask]:
    return [
        Ask(f"r{n}", world.key, model, TOKENS, stream=n % 2 == 0, prompt=f"r{n} hello")
        for n in range(first, first + count)
    ]


async def at_once(world: World, requests: Sequence[Ask]) -> list[Answer]:
    return await asyncio.gather(*(send(ask, world.port, timeout_s=TIMEOUT_S) for ask in requests))


async def posted_nano_usd(world: World) -> int:
    database = open_database(world.plan.settings.billing.database_url)
    statement = text("SELECT posted_nano_usd FROM workspaces WHERE id = :id")
    try:
        found: Any = await database.read(
            lambda c: c.execute(statement, {"id": world.workspace_id}).scalar_one()
        )
        return int(found)
    finally:
        await database.close()


def ends(answers: Sequence[Answer]) -> Counter[str]:
    """How many completed, or were refused with which error's code."""
    return Counter("completed" if answer.completed else answer.error_code for answer in answers)


@pytest.mark.parametrize(
    ("ledger", "ingresses"), [pytest.param("sqlite", 3, marks=pytest.mark.long), ("postgresql", 3)]
)
async def test_a_limit_that_pays_for_fifty_pays_for_exactly_fifty_of_five_hundred(
    machines: Machines, ledger: LedgerKind, ingresses: int
) -> None:
    each = PRICES[EXACT].nano_usd(0, TOKENS)
    async with new_world(setup(ledger, ingresses, PAID_FOR * each), machines) as world:
        answers = await at_once(world, asks(world, EXACT, AT_ONCE))
        await settled(world.books())
        tally = await check(world.books(), answers, everyone_lives=True)
        spent = await posted_nano_usd(world)
    assert ends(answers)["completed"] == PAID_FOR
    assert set(ends(answers)) <= REFUSALS
    assert spent == PAID_FOR * each
    assert tally.violations == []


@pytest.mark.parametrize(
    ("ledger", "ingresses"), [("sqlite", 1), pytest.param("postgresql", 3, marks=pytest.mark.long)]
)
async def test_holds_above_the_cost_never_overspend_and_leave_less_than_one_hold_unspent(
    machines: Machines, ledger: LedgerKind, ingresses: int
) -> None:
    limit = PAID_FOR * PRICES[BOUNDED].nano_usd(3, TOKENS)
    async with new_world(setup(ledger, ingresses, limit), machines) as world:
        answers = await at_once(world, asks(world, BOUNDED, AT_ONCE))
        # Who was refused while others held the money asks again, one after the other, until nothing is left.
        while answers[-1].status != 402 or len(answers) == AT_ONCE:
            answers += await at_once(world, asks(world, BOUNDED, 1, first=len(answers)))
            assert len(answers) < AT_ONCE + 2 * PAID_FOR
        await settled(world.books())
        tally = await check(world.books(), answers, everyone_lives=True)
        spent = await posted_nano_usd(world)
    # The prompt's bytes and the template's share bound its tokens.
    hold = PRICES[BOUNDED].nano_usd(150, TOKENS)
    assert limit - hold < spent <= limit
    assert set(ends(answers)) <= REFUSALS
    assert tally.violations == []
