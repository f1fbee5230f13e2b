"""Servers that get no more memory: a request that needs much of it ends with an error, and the others are answered."""

from __future__ import annotations

import asyncio
import json
import resource

import httpx
import psutil

from tests.faults.audit import check, settled
from tests.faults.client import send
from tests.faults.scarcity import SPARE_BYTES
from tests.faults.test_overspend import EXACT, asks
from tests.faults.world import Machines, Setup, World, new_world

LARGE, SMALL = 6, 12
UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


async def ask_much(http: httpx.AsyncClient, world: World) -> str:
    """How a request ended whose body has several times the memory that is left."""
    text = "word " * (world.plan.settings.server.max_body_bytes // 6)
    body = json.dumps({"query": "word?", "input": text}).encode()
    assert len(body) > SPARE_BYTES // 2
    try:
        reply = await http.post("/v1/compress", content=body, headers={"Content-Type": "application/json"})
    except httpx.TransportError as error:
        return type(error).__name__
    assert reply.status_code == 200 or "error" in reply.json()
    return str(reply.status_code)


async def test_a_request_without_memory_ends_and_the_others_are_answered(machines: Machines) -> None:
    async with new_world(Setup(ledger="sqlite", open_files=256), machines) as world:
        headers = {"Authorization": f"Bearer {world.key}"}
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{world.port}", headers=headers, timeout=60
        ) as http:
            (warm, *small) = asks(world, EXACT, SMALL + 1)
            first = await send(warm, world.port, timeout_s=60)
            (pid,) = world.pids
            limit = psutil.Process(pid).memory_info().vms
            resource.prlimit(pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
            large, answers = await asyncio.gather(
                asyncio.gather(*(ask_much(http, world) for _ in range(LARGE))),
                asyncio.gather(*(send(ask, world.port, timeout_s=60) for ask in small)),
            )
            resource.prlimit(pid, resource.RLIMIT_AS, UNLIMITED)
            after = await ask_much(http, world)
        await settled(world.books())
        tally = await check(world.books(), [first, *answers], everyone_lives=False, may_err=True)
        lived = psutil.pid_exists(pid)
    ended = [answer.status for answer in answers if answer.completed]
    print(f"\nlarge: {large}, and {after} with memory; small: {len(ended)} of {SMALL}")
    assert lived and len(ended) == SMALL
    # It was short: what ends in one way with memory ended in another without.
    assert after in ("200", "422") and set(large) != {after}
    assert (tally.lost, tally.doubled) == (0, 0)
