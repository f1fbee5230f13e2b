"""Limits that one process counts for several: exact whoever asks, and free again when who asked has ended."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from billing.caller import Caller, ProjectLimits
from billing.errors import LimitsUnavailable, RateLimited
from billing.rate_limits.counters import Answer, Ask, MemoryCounters
from billing.rate_limits.rate_limits import RateLimits
from serve.processes.rate_limit_counters import SharedCounters
from tests.serve.processes.counting import counted_elsewhere
from tests.serve.served import eventually

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def caller(**limits: int) -> Caller:
    return Caller("workspace", uuid4().hex, "key", metered=True, limits=ProjectLimits(**limits))


async def is_admitted(limits: RateLimits, who: Caller) -> bool:
    try:
        await limits.admit(who, tokens_bound=1, now=NOW)
    except RateLimited:
        return False
    return True


class FakeSlowCounters(MemoryCounters):
    """A fake: its answers come when `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def take(self, ask: Ask) -> Answer:
        self.asked.set()
        await self.go.wait()
        return await super().take(ask)


async def test_two_processes_together_let_in_exactly_the_limit() -> None:
    async with counted_elsewhere() as path:
        both = [RateLimits(SharedCounters(path)) for _ in range(2)]
        who = caller(requests_per_minute=7)
        found = await asyncio.gather(*(is_admitted(both[n % 2], who) for n in range(40)))
        assert sum(found) == 7
        for limits in both:
            await limits.close()


async def test_a_process_that_ends_gives_its_places_back() -> None:
    async with counted_elsewhere() as path:
        ended, other = RateLimits(SharedCounters(path)), RateLimits(SharedCounters(path))
        who = caller(max_in_flight=3)
        assert [await is_admitted(ended, who) for _ in range(4)] == [True] * 3 + [False]
        assert not await is_admitted(other, who)
        await ended.close()
        let_in = 0
        async with asyncio.timeout(60):
            while let_in < 3:
                let_in += await is_admitted(other, who)
        assert not await is_admitted(other, who)
        await other.close()


async def test_a_request_that_leaves_while_it_is_counted_is_not_counted() -> None:
    counters = FakeSlowCounters()
    async with counted_elsewhere(counters) as path:
        limits, who = RateLimits(SharedCounters(path)), caller(max_in_flight=1, tokens_per_minute=1)
        leaving = asyncio.create_task(limits.admit(who, tokens_bound=1, now=NOW))
        await counters.asked.wait()
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        counters.go.set()
        assert await is_admitted(limits, who)
        await limits.close()


async def test_counts_that_do_not_answer_in_time_are_unavailable_and_count_nothing() -> None:
    counters = FakeSlowCounters()
    async with counted_elsewhere(counters) as path:
        limits, who = RateLimits(SharedCounters(path, timeout_s=0.01)), caller(max_in_flight=1)
        with pytest.raises(LimitsUnavailable):
            await is_admitted(limits, who)
        await limits.close()
        counters.go.set()
        patient = RateLimits(SharedCounters(path))
        assert await is_admitted(patient, who)
        await patient.close()


async def test_where_nobody_counts_the_limits_are_unavailable() -> None:
    async with counted_elsewhere() as path:
        pass
    limits, who = RateLimits(SharedCounters(path)), caller(max_in_flight=1)
    with pytest.raises(LimitsUnavailable):
        await is_admitted(limits, who)
    await limits.close()


async def test_what_cannot_be_read_ends_that_connection_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with counted_elsewhere() as path:
        limits, who = RateLimits(SharedCounters(path)), caller(max_in_flight=1)
        assert await is_admitted(limits, who)
        for nonsense in (b"{]\n", b"{" * 70_000):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(nonsense)
            assert await reader.read() == b""
            writer.close()
        assert not await is_admitted(limits, who)
        await eventually(lambda: "cannot read a rate-limit request" in caplog.text)
        await limits.close()
