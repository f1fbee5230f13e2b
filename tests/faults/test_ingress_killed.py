"""kill -9 of an HTTP process under load: clients that come after do not notice, whoever dies."""

from __future__ import annotations

import asyncio

from billing.ledger.leases import LeaseTimes
from tests.faults.client import Answer, Ask, send
from tests.faults.world import Machines, Setup, World, new_world

TIMEOUT_S = 120.0
CLIENTS, REQUESTS = 10, 30


def ask(world: World, number: int, tokens: int) -> Ask:
    return Ask(f"r{number}", world.key, "gamma", tokens, stream=False, prompt=f"r{number}")


async def answers_of_a_client(world: World, number: int) -> list[Answer]:
    """One request after the other, each over a connection of its own."""
    first = number * REQUESTS
    return [await send(ask(world, first + n, 4), world.port, timeout_s=TIMEOUT_S) for n in range(REQUESTS)]


async def test_no_connection_is_refused_and_only_what_the_process_carried_fails(machines: Machines) -> None:
    setup = Setup(
        ledger="sqlite", ingresses=2, with_coordinator=True, lease=LeaseTimes(ttl_s=3, renew_every_s=0.5)
    )
    async with new_world(setup, machines) as world:
        clients = [asyncio.create_task(answers_of_a_client(world, number)) for number in range(CLIENTS)]
        await send(ask(world, 10_000, 4), world.port, timeout_s=TIMEOUT_S)
        await world.servers[0].kill()
        answers = [answer for client in clients for answer in await client]
        lost = [answer for answer in answers if not answer.completed]
        # Each client has one request under way at a time, and makes a new connection for each.
        assert len(lost) <= CLIENTS
        assert not [answer for answer in lost if "refused" in str(answer.trouble).lower()]
        assert len(answers) - len(lost) >= CLIENTS * (REQUESTS - 1)


async def test_who_comes_while_no_process_is_up_is_answered_by_the_next(machines: Machines) -> None:
    setup = Setup(
        ledger="sqlite", ingresses=2, with_coordinator=True, lease=LeaseTimes(ttl_s=3, renew_every_s=0.5)
    )
    async with new_world(setup, machines) as world:
        for server in world.servers:
            await server.kill()
        waiting = [
            asyncio.create_task(send(ask(world, number, 2), world.port, timeout_s=TIMEOUT_S))
            for number in range(CLIENTS)
        ]
        await world.start_server()
        answers = await asyncio.gather(*waiting)
    assert all(answer.completed for answer in answers), answers
