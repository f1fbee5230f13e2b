"""A server that stands still until its holds are closed, while another spends the money again: never past the limit."""

from __future__ import annotations

import asyncio
import os
import signal

from sqlalchemy import text

from billing.ledger.leases import LeaseTimes
from billing.store.database import open_database
from tests.faults.audit import settled
from tests.faults.prices import PRICES
from tests.faults.test_overspend import EXACT, TOKENS, asks, at_once
from tests.faults.world import Machines, Setup, World, new_world

PAID_FOR = 20
_MONEY = text("SELECT posted_nano_usd, held_nano_usd FROM workspaces WHERE id = :id")
_EVENTS = text(
    "SELECT coalesce(sum(cost_nano_usd), 0), coalesce(sum(written_off_nano_usd), 0) FROM usage_events "
    "WHERE workspace_id = :id"
)


async def read(world: World, statement: object) -> tuple[int, int]:
    database = open_database(world.plan.settings.billing.database_url)
    try:
        row = await database.read(lambda c: c.execute(statement, {"id": world.workspace_id}).one())
        return int(row[0]), int(row[1])
    finally:
        await database.close()


async def wait_until(world: World, *, held: int | None = None, posted: int | None = None) -> None:
    async with asyncio.timeout(120):
        while True:
            now_posted, now_held = await read(world, _MONEY)
            if held in (None, now_held) and (posted is None or now_posted >= posted):
                return
            await asyncio.sleep(0.05)


async def test_what_a_stopped_server_finishes_is_posted_only_within_the_limit(machines: Machines) -> None:
    each = PRICES[EXACT].nano_usd(0, TOKENS)
    limit = PAID_FOR * each
    setup = Setup(
        ledger="postgresql",
        ingresses=2,
        spend_limit_nano_usd=limit,
        # Four seconds a reply: all have asked by the time that the first is done, on a busy machine too.
        token_s=0.4,
        lease=LeaseTimes(ttl_s=0.9, renew_every_s=0.2),
    )
    async with new_world(setup, machines) as world:
        first = asyncio.create_task(at_once(world, asks(world, EXACT, PAID_FOR)))
        await wait_until(world, held=limit)
        os.kill(world.pids[0], signal.SIGSTOP)
        try:
            # The other server closes its holds, and what they had withheld is spent again.
            await wait_until(world, held=0)
            again = asyncio.create_task(at_once(world, asks(world, EXACT, 3 * PAID_FOR, first=PAID_FOR)))
            await wait_until(world, posted=limit)
        finally:
            os.kill(world.pids[0], signal.SIGCONT)
        answers = [*await first, *await again]
        await settled(world.books())
        money, (cost, written_off) = await read(world, _MONEY), await read(world, _EVENTS)
    assert money == (limit, 0)
    # Each reply that its client saw whole is on record, also those that nobody pays for.
    assert cost - written_off == limit
    assert cost == each * sum(answer.completed for answer in answers)
    assert written_off > 0
