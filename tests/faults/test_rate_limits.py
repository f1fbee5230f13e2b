"""Rate limits over HTTP with three servers that share a Redis or a coordinator: together they let in the limit, not
three times as much."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter

import pytest

from billing.caller import ProjectLimits
from tests.faults.audit import settled
from tests.faults.client import Answer, Ask, send
from tests.faults.world import LedgerKind, Machines, Setup, World, new_world

INGRESSES = 3
TIMEOUT_S = 120.0
MINUTE_S = 60


def asks(world: World, count: int, rng: random.Random, tokens: int) -> list[Ask]:
    return [
        Ask(f"r{n}", world.key, "gamma", tokens, stream=rng.random() < 0.5, prompt=f"r{n}")
        for n in range(count)
    ]


async def answers_of(world: World, requests: list[Ask]) -> list[Answer]:
    answers = await asyncio.gather(*(send(ask, world.port, timeout_s=TIMEOUT_S) for ask in requests))
    await settled(world.books())
    return list(answers)


def counted(answers: list[Answer]) -> Counter[int | str]:
    for answer in answers:
        if answer.status == 429:
            assert int(answer.headers["retry-after"]) >= 1
    return Counter(200 if answer.completed else answer.status or answer.trouble for answer in answers)


@pytest.mark.parametrize(
    ("ledger", "shared"),
    [pytest.param("sqlite", "on_redis", marks=pytest.mark.long), ("postgresql", "with_coordinator")],
)
async def test_the_accepted_count_is_the_limit_of_requests_a_minute(
    machines: Machines, ledger: LedgerKind, shared: str
) -> None:
    rng = random.Random(shared)
    limit, asked = rng.randint(3, 60), rng.randint(61, 150)
    setup = Setup(
        ledger=ledger,
        ingresses=INGRESSES,
        on_redis=shared == "on_redis",
        with_coordinator=shared == "with_coordinator",
        limits=ProjectLimits(requests_per_minute=limit),
    )
    for _ in range(3):
        async with new_world(setup, machines) as world:
            minute = time.time() // MINUTE_S
            found = counted(await answers_of(world, asks(world, asked, rng, tokens=3)))
        if time.time() // MINUTE_S == minute:
            # In a new minute, more are let in as the old one fades: then once more, with a new project.
            break
    assert found == {200: limit, 429: asked - limit}


@pytest.mark.parametrize("shared", ["on_redis", pytest.param("with_coordinator", marks=pytest.mark.long)])
async def test_the_accepted_count_is_the_limit_of_requests_in_flight(machines: Machines, shared: str) -> None:
    rng = random.Random(shared)
    limit, asked = rng.randint(1, 20), rng.randint(30, 60)
    setup = Setup(
        ledger="postgresql",
        ingresses=INGRESSES,
        on_redis=shared == "on_redis",
        with_coordinator=shared == "with_coordinator",
        # Eight seconds a reply: all have asked by the time that the first is done, on a busy machine too.
        token_s=0.2,
        limits=ProjectLimits(max_in_flight=limit),
    )
    async with new_world(setup, machines) as world:
        found = counted(await answers_of(world, asks(world, asked, rng, tokens=40)))
        # Every slot is free again.
        again = counted(await answers_of(world, asks(world, limit, rng, tokens=1)))
    assert found == {200: limit, 429: asked - limit}
    assert again == {200: limit}
