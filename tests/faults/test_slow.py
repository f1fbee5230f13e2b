"""A ledger that takes a second for each answer, and a Redis that takes half of one: how long requests take, who else
waits, and what is in the books. `pytest -s` prints the times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

import httpx
import pytest

from tests.faults.audit import check, settled
from tests.faults.client import Answer, send
from tests.faults.run import WIDE_LIMITS
from tests.faults.scarcity import QUERY_S, REDIS_S
from tests.faults.test_overspend import EXACT, asks, ends
from tests.faults.world import Machines, Setup, World, new_world

AT_ONCE = 8
# The product's own for a transaction. A chat waits for its key, its hold, its settlement and then perhaps the spool.
TIMEOUT_S = 5.0
# What a busy machine adds.
BUSY_S = 20.0
LONGEST_S = {"ledger": 3 * TIMEOUT_S + BUSY_S, "redis": 4 * REDIS_S + BUSY_S}
STREAM = {"model": EXACT, "max_tokens": 2000, "stream": True, "ignore_eos": True}


@dataclass
class Others:
    """How long those took that ask for nothing of the slow server's, and how far apart the pieces of a stream were."""

    times_s: list[float] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self, http: httpx.AsyncClient) -> None:
        while not self.over.is_set():
            for path in ("/health", "/ready", "/v1/catalog"):
                began = time.monotonic()
                assert (await http.get(path)).status_code == 200
                self.times_s.append(time.monotonic() - began)

    async def read(self, http: httpx.AsyncClient, begun: asyncio.Event) -> None:
        """A stream, until the others are done."""
        body = {**STREAM, "messages": [{"role": "user", "content": "Hello."}]}
        async with http.stream("POST", "/v1/chat/completions", json=body) as reply:
            before = None
            async for _ in reply.aiter_bytes():
                now, last = time.monotonic(), before
                before = now
                begun.set()
                if self.over.is_set():
                    return
                if last is not None:
                    self.gaps_s.append(now - last)


@asynccontextmanager
async def others_of(world: World) -> AsyncIterator[Others]:
    """Ask and read beside the block, from before its beginning to its end."""
    others, begun = Others(), asyncio.Event()
    headers = {"Authorization": f"Bearer {world.key}"}
    async with (
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{world.port}", headers=headers, timeout=60) as http,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(others.read(http, begun))
        await asyncio.wait_for(begun.wait(), 60)
        tasks.create_task(others.ask(http))
        try:
            yield others
        finally:
            others.over.set()


async def timed(world: World, first: int = 0, of: int = AT_ONCE) -> tuple[Sequence[Answer], float]:
    """Some chats at once, and the time of the one that took longest."""
    began, longest = time.monotonic(), 0.0

    async def one(number: int) -> Answer:
        nonlocal longest
        (ask,) = asks(world, EXACT, 1, first=number)
        answer = await send(ask, world.port, timeout_s=120)
        longest = max(longest, time.monotonic() - began)
        return answer

    return await asyncio.gather(*(one(first + number) for number in range(of))), longest


@pytest.mark.parametrize(("slow", "delay_s"), [("ledger", QUERY_S), ("redis", REDIS_S)])
async def test_each_request_ends_in_time_and_what_needs_neither_does_not_wait(
    machines: Machines, slow: Literal["ledger", "redis"], delay_s: float
) -> None:
    setup = Setup(
        ledger="postgresql",
        slow_link=slow,
        database_timeout_s=TIMEOUT_S,
        on_redis=slow == "redis",
        limits=WIDE_LIMITS if slow == "redis" else Setup.limits,
    )
    async with new_world(setup, machines) as world:
        # A server that has worked has its connections to the ledger. Those to Redis are made anew while it is slow.
        first, _ = await timed(world, of=AT_ONCE if slow == "ledger" else 1)
        assert all(answer.completed for answer in first) and world.link is not None
        async with others_of(world) as others:
            world.link.delay_s = delay_s
            answers, longest_s = await timed(world, first=AT_ONCE)
        late, world.link.delay_s = world.link.delayed, 0
        await settled(world.books())
        # The stream was left; its usage is in the books, and is nobody's of these.
        tally = await check(world.books(), [*first, *answers], everyone_lives=False)
    print(f"\n{slow}: {dict(ends(answers))}, the longest {longest_s:.1f} s, {late} late answers; beside them")
    print(f"{len(others.times_s)} requests, the longest {max(others.times_s):.2f} s, and")
    print(f"{len(others.gaps_s)} pieces of a stream, {max(others.gaps_s):.2f} s apart at most")
    assert set(ends(answers)) <= {"completed", "ledger_unavailable"}
    assert longest_s < LONGEST_S[slow] and late > 0
    # What waits for the slow one does so each time; on a busy machine one may take as long.
    for waits_s in (others.times_s, others.gaps_s):
        assert sum(one for one in waits_s if one > delay_s / 2) < sum(waits_s) / 2
    assert (tally.lost, tally.doubled) == (0, 0)
