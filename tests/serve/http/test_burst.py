"""A thousand requests at once against the real HTTP server: each is answered or refused as the contract says, and none
is reset. How long `/health` takes meanwhile is measured by `benchmarks.burst`; here it must have answered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import orjson
import pytest

from benchmarks.burst.sending import Burst, burst, complaints
from benchmarks.load.exchange import Call, chat
from benchmarks.load.loop import Target
from billing.caller import ProjectLimits
from tests.faults.audit import settled
from tests.faults.world import Machines, Setup, World, new_world

AT_ONCE = 1000
TIMEOUT_S = 60
# Free prompts, since a burst of them is to cost what its replies cost.
MODEL = "gamma"


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    found = Machines()
    yield found
    found.close()


def requests(*, stream: bool, characters: int = 10) -> Call:
    """The fake engine wants each prompt to begin with its request's name."""
    plain = chat(MODEL, tokens=4, stream=stream)
    bodies = (
        {
            **orjson.loads(body),
            "messages": [{"role": "user", "content": f"r{number} {'word ' * (characters // 5)}"}],
        }
        for number, body in enumerate(plain.bodies)
    )
    return replace(plain, bodies=tuple(map(orjson.dumps, bodies)))


async def at_once(world: World, calls: dict[str, Call]) -> list[Burst]:
    target = Target(f"http://127.0.0.1:{world.port}", world.key)
    share = AT_ONCE // len(calls)
    return await asyncio.gather(
        *(burst(kind, target, call, requests=share, timeout_s=TIMEOUT_S) for kind, call in calls.items())
    )


async def test_a_thousand_at_once_are_answered_by_a_server_that_may_open_few_files_at_first(
    machines: Machines,
) -> None:
    calls = {
        "json": requests(stream=False),
        "sse": requests(stream=True),
        "long": requests(stream=False, characters=16_000),
        "long sse": requests(stream=True, characters=16_000),
    }
    async with new_world(Setup(ledger="sqlite", open_files=256), machines) as world:
        bursts = await at_once(world, calls)
        await settled(world.books())
    assert [one.counts() for one in bursts] == [{"200": AT_ONCE // len(calls)}] * len(calls)
    assert complaints(bursts, max_health_ms=1000 * TIMEOUT_S) == []


async def test_of_a_thousand_at_once_those_over_the_projects_limit_are_told_when_to_come_back(
    machines: Machines,
) -> None:
    setup = Setup(ledger="sqlite", limits=ProjectLimits(max_in_flight=50), token_s=0.05)
    async with new_world(setup, machines) as world:
        bursts = await at_once(world, {"json": requests(stream=False)})
        await settled(world.books())
    counts = bursts[0].counts()
    assert counts.keys() == {"200", "429"}
    assert counts["200"] >= 50
    assert complaints(bursts, max_health_ms=1000 * TIMEOUT_S) == []
