"""`redis_counters` on a real Redis: servers that share a limit share all of it, and an outage neither hangs
nor leaks."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from billing.caller import EACH_PERSON, Caller, ProjectLimits
from billing.errors import LimitsUnavailable, RateLimited
from billing.rate_limits.counters import Ask, Charge
from billing.rate_limits.rate_limits import Admission, RateLimits
from billing.rate_limits.redis_counters import RedisCounters

if TYPE_CHECKING:
    from tests.billing.conftest import RedisServer

ROOT = Path(__file__).resolve().parents[3]
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
SERVERS = 3

# A server of its own process: it asks `ASKED` times at once and prints what it was told.
ASKED = 200
SERVER = """
import asyncio, sys
from datetime import datetime
from billing.caller import Caller, ProjectLimits
from billing.errors import RateLimited
from billing.rate_limits.rate_limits import RateLimits
from billing.rate_limits.redis_counters import RedisCounters

async def main(url, project, now, asked, end, limits):
    limiter = RateLimits(RedisCounters(url, timeout_s=60))
    who = Caller("workspace", project, "key", metered=True, limits=ProjectLimits(**limits))
    async def ask():
        try:
            return await limiter.admit(who, tokens_bound=10, now=datetime.fromisoformat(now))
        except RateLimited:
            return None
    print("ready", flush=True)
    sys.stdin.readline()
    admitted = [found for found in await asyncio.gather(*(ask() for _ in range(asked))) if found]
    print(len(admitted), flush=True)
    sys.stdin.readline()
    if end:
        for admission in admitted:
            await admission.done(10)
    await limiter.close()

asyncio.run(main(*eval(sys.argv[1])))
"""


class Servers:
    """Some servers of one project, each in a process of its own, that begin at the same time."""

    def __init__(self, url: str, project: str, count: int = SERVERS, **limits: int) -> None:
        arguments = repr((url, project, NOW.isoformat(), ASKED, True, limits))
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-c", SERVER, arguments],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(count)
        ]

    def admitted(self) -> list[int]:
        for process in self.processes:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        for process in self.processes:
            self._say(process)
        return [int(process.stdout.readline()) for process in self.processes if process.stdout is not None]

    def end(self) -> None:
        for process in self.processes:
            self._say(process)
            assert process.wait(timeout=120) == 0

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()

    @staticmethod
    def _say(process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()


def caller(project_id: str, **limits: int) -> Caller:
    return Caller("workspace", project_id, "key", metered=True, limits=ProjectLimits(**limits))


async def admit(limits: RateLimits, who: Caller) -> Admission | None:
    try:
        return await limits.admit(who, tokens_bound=10, now=NOW)
    except RateLimited:
        return None


@pytest.mark.parametrize(
    ("limits", "fits"),
    [
        ({"requests_per_minute": 100}, 100),
        ({"tokens_per_minute": 1005}, 100),
        ({"max_in_flight": 40}, 40),
        ({"requests_per_minute": 90, "tokens_per_minute": 1000, "max_in_flight": 200}, 90),
    ],
)
async def test_three_servers_at_once_let_in_the_limit_exactly(
    redis_server: str, limits: dict[str, int], fits: int
) -> None:
    project = uuid4().hex
    servers = Servers(redis_server, project, **limits)
    try:
        admitted = await asyncio.to_thread(servers.admitted)
        assert sum(admitted) == fits, admitted
        await asyncio.to_thread(servers.end)
    finally:
        servers.close()


async def test_slots_that_one_server_frees_are_anothers(redis_server: str) -> None:
    who = caller(uuid4().hex, max_in_flight=2)
    one, other = (RateLimits(RedisCounters(redis_server, timeout_s=60)) for _ in range(2))
    first, second = await admit(one, who), await admit(other, who)
    assert first and second and await admit(other, who) is None
    await first.done(10)
    third = await admit(other, who)
    assert third and await admit(one, who) is None
    for limiter in (one, other):
        await limiter.close()


async def test_persons_and_the_workspace_are_counted_by_all_servers_together(redis_server: str) -> None:
    limits = ProjectLimits(requests_per_minute=30)
    who = replace(caller(uuid4().hex), workspace_id=uuid4().hex, workspace_limits=limits)
    each = {EACH_PERSON: ProjectLimits(requests_per_minute=20, max_in_flight=20)}
    servers = [RateLimits(RedisCounters(redis_server, timeout_s=60)) for _ in range(2)]
    let_in = []
    for person in ("psn_a", "psn_b", "psn_b"):
        one = replace(who, person=person, label_limits=each)
        asked = [admit(server, one) for server in servers for _ in range(25)]
        let_in.append(sum(admission is not None for admission in await asyncio.gather(*asked)))
    assert let_in == [20, 10, 0]
    for server in servers:
        await server.close()


def ask_for(project: str, ticket: str) -> Ask:
    charges = (Charge("requests", 10, 1), Charge("tokens", 100, 10))
    return Ask(ticket, project, int(NOW.timestamp() // 60), 0.0, charges, max_in_flight=1)


async def granted_within(counters: RedisCounters, ask: Ask, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if (await counters.take(ask)).granted:
            return True
        await asyncio.sleep(0.02)
    return False


async def test_a_lease_outlives_its_time_while_its_server_lives_and_not_after_it_was_killed(
    redis_server: str,
) -> None:
    project = uuid4().hex
    dying, living = (RedisCounters(redis_server, timeout_s=60, lease_s=1.5) for _ in range(2))
    assert (await dying.take(ask_for(project, "a"))).granted
    assert not await granted_within(living, ask_for(project, "b"), 2.5)
    # What a kill leaves behind: a lease that nobody renews and nobody gives back.
    assert dying._renewing is not None
    async with asyncio.timeout(60):
        # Redis's client may take a cancellation for the end of its own wait, and the task would go on.
        while not dying._renewing.done():
            dying._renewing.cancel()
            await asyncio.wait([dying._renewing], timeout=0.05)
    assert await granted_within(living, ask_for(project, "b"), 60)
    for counters in (dying, living):
        await counters.close()


async def test_a_slot_that_passes_from_one_request_to_the_next_is_renewed_for_the_next(
    redis_server: str,
) -> None:
    """The renewer that the first one's end had told to stop was once taken for one that renews."""
    lease_s, handovers = 2.0, 200
    counters = RedisCounters(redis_server, timeout_s=60, lease_s=lease_s)
    lost = []

    async def hand_over(number: int) -> None:
        first, second = ask_for(uuid4().hex, f"a{number}"), ask_for(uuid4().hex, f"b{number}")
        assert (await counters.take(first)).granted
        taking = asyncio.create_task(counters.take(second))
        # At another moment of the second's way each time.
        for _ in range(number % 12):
            await asyncio.sleep(0)
        await asyncio.gather(counters.give_back(first, {}), taking)
        if counters._renewing is None or counters._renewing.cancelling() or counters._renewing.done():
            lost.append(number)
        await counters.give_back(second, {})

    for number in range(handovers):
        await hand_over(number)
    assert lost == []
    kept = ask_for(uuid4().hex, "kept")
    assert (await counters.take(kept)).granted
    other = RedisCounters(redis_server, timeout_s=60, lease_s=lease_s)
    assert not await granted_within(other, replace(kept, ticket="other"), 2 * lease_s)
    for one in (counters, other):
        await one.close()


async def test_a_request_that_leaves_while_it_is_counted_leaves_nothing_counted(redis_server: str) -> None:
    project = uuid4().hex
    counters = RedisCounters(redis_server, timeout_s=60)
    for wait_s in (0.0, 0.0002, 0.0005, 0.001, 0.002):
        taking = asyncio.create_task(counters.take(ask_for(project, f"left-{wait_s}")))
        await asyncio.sleep(wait_s)
        if not taking.cancel():
            await counters.give_back(ask_for(project, f"left-{wait_s}"), {"requests": 1, "tokens": 10})
        await asyncio.gather(taking, return_exceptions=True)
        while counters._calls:
            await asyncio.gather(*counters._calls)
    found = await counters.take(ask_for(project, "last"))
    assert found.granted and [window.current for window in found.windows] == [0, 0]
    await counters.close()


async def test_tokens_are_given_back_even_if_their_request_is_cancelled_meanwhile(redis_server: str) -> None:
    limits, who = (
        RateLimits(RedisCounters(redis_server, timeout_s=60)),
        caller(uuid4().hex, tokens_per_minute=100, max_in_flight=1),
    )
    admission = await limits.admit(who, tokens_bound=100, now=NOW)
    ending = asyncio.create_task(admission.done(0))
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.gather(ending, return_exceptions=True)
    await limits.close()
    again = RateLimits(RedisCounters(redis_server, timeout_s=60))
    assert isinstance(await again.admit(who, tokens_bound=100, now=NOW), Admission)
    await again.close()


@pytest.fixture
async def limiter(mortal_redis: RedisServer) -> AsyncIterator[RateLimits]:
    limits = RateLimits(RedisCounters(mortal_redis.url))
    yield limits
    await limits.close()


async def test_without_redis_nobody_with_a_limit_is_let_in_and_with_it_all_goes_on(
    limiter: RateLimits, mortal_redis: RedisServer
) -> None:
    who = caller(uuid4().hex, requests_per_minute=3, max_in_flight=2)
    before = await limiter.admit(who, tokens_bound=10, now=NOW)
    mortal_redis.stop()
    for _ in range(5):
        with pytest.raises(LimitsUnavailable):
            await limiter.admit(who, tokens_bound=10, now=NOW)
    assert await admit(limiter, caller(uuid4().hex)), "a project without limits needs no Redis"
    await before.done(10)
    mortal_redis.start()
    # It forgot what it had counted; what was asked for in between is not in it.
    assert [bool(await admit(limiter, who)) for _ in range(3)] == [True, True, False]


async def test_a_redis_that_hangs_costs_a_bounded_time_and_leaks_nothing(mortal_redis: RedisServer) -> None:
    project = uuid4().hex
    counters = RedisCounters(mortal_redis.url, timeout_s=0.2, lease_s=0.5)
    assert (await counters.take(ask_for(project, "first"))).granted
    mortal_redis.stop(signal.SIGSTOP)
    began = time.monotonic()
    results = await asyncio.gather(
        *(counters.take(ask_for(project, f"{n}")) for n in range(100)), return_exceptions=True
    )
    with pytest.raises(LimitsUnavailable):
        await counters.give_back(ask_for(project, "first"), {})
    # One after another they would take over 20 s.
    assert time.monotonic() - began < 15
    assert all(isinstance(result, LimitsUnavailable) for result in results)
    mortal_redis.stop(signal.SIGCONT)
    # Neither the first, which could not give its slot back, nor those that Redis counted late hold one for long.
    assert await granted_within(counters, ask_for(project, "next"), 60)
    await counters.close()


async def test_where_the_operator_allows_it_each_server_counts_by_itself_meanwhile(
    mortal_redis: RedisServer,
) -> None:
    limits = RateLimits(RedisCounters(mortal_redis.url), on_outage="allow")
    who = caller(uuid4().hex, requests_per_minute=3)
    mortal_redis.stop()
    assert [bool(await admit(limits, who)) for _ in range(5)] == [True, True, True, False, False]
    mortal_redis.start()
    await limits.close()
