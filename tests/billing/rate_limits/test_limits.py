"""`billing.rate_limits.rate_limits`: what is let in, what is refused, and that a refusal costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from billing.caller import Caller, ProjectLimits, WindowState
from billing.errors import RateLimited
from billing.rate_limits.rate_limits import Admission, RateLimits, open_counters
from billing.rate_limits.redis_counters import RedisCounters
from serve.processes.rate_limit_counters import SharedCounters
from tests.serve.processes.counting import counted_elsewhere

# At the start of a minute, so that a test's seconds stay within it.
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def caller(**limits: int) -> Caller:
    """Of a project that no other test has."""
    return Caller("workspace", uuid4().hex, "key", metered=True, limits=ProjectLimits(**limits))


@pytest.fixture(params=["memory", "redis", "coordinator"])
async def limits(request: pytest.FixtureRequest) -> AsyncIterator[RateLimits]:
    """A limiter of each kind: what one does, the others do."""
    if request.param == "coordinator":
        async with counted_elsewhere() as path:
            limits = RateLimits(SharedCounters(path))
            yield limits
            await limits.close()
        return
    if request.param == "memory":
        limits = RateLimits(open_counters("memory://"))
    else:
        # A busy machine may take longer than a server that is asked to answer.
        limits = RateLimits(RedisCounters(request.getfixturevalue("redis_server"), timeout_s=60))
    yield limits
    await limits.close()


async def admit(
    limits: RateLimits, who: Caller, *, tokens: int = 10, seconds: float = 0
) -> Admission | RateLimited:
    try:
        return await limits.admit(who, tokens_bound=tokens, now=NOW + timedelta(seconds=seconds))
    except RateLimited as refusal:
        return refusal


async def count_admitted(limits: RateLimits, who: Caller, attempts: int, **options: float) -> int:
    results = [await admit(limits, who, **options) for _ in range(attempts)]  # type: ignore[arg-type]
    return sum(isinstance(result, Admission) for result in results)


async def test_an_unlimited_project_is_always_let_in(limits: RateLimits) -> None:
    assert await count_admitted(limits, caller(), 1000) == 1000
    admission = await limits.admit(caller(), tokens_bound=1, now=NOW)
    assert (admission.headers_state.requests, admission.headers_state.tokens) == (None, None)


async def test_as_many_requests_a_minute_as_the_limit_says(limits: RateLimits) -> None:
    assert await count_admitted(limits, caller(requests_per_minute=5), 20) == 5


async def test_as_many_at_once_as_the_limit_says(limits: RateLimits) -> None:
    who = caller(requests_per_minute=5)
    results = await asyncio.gather(*(admit(limits, who) for _ in range(50)))
    assert sum(isinstance(result, Admission) for result in results) == 5


async def test_requests_at_once_get_all_that_the_limits_allow_and_the_refused_count_nothing(
    limits: RateLimits,
) -> None:
    who = caller(requests_per_minute=20, tokens_per_minute=50)
    results = await asyncio.gather(*(admit(limits, who, tokens=10) for _ in range(60)))
    assert sum(isinstance(result, Admission) for result in results) == 5
    assert await count_admitted(limits, replace(who, limits=ProjectLimits(requests_per_minute=20)), 30) == 15


async def test_projects_do_not_share_their_limits(limits: RateLimits) -> None:
    for _ in range(2):
        assert await count_admitted(limits, caller(requests_per_minute=3), 10) == 3


async def test_a_refusal_says_which_limit_and_when_to_come_back(limits: RateLimits) -> None:
    who = caller(requests_per_minute=2, tokens_per_minute=1000)
    await count_admitted(limits, who, 2)
    refusal = await admit(limits, who, seconds=10)
    assert isinstance(refusal, RateLimited)
    assert (refusal.which, refusal.limit) == ("requests", 2)
    # The minute ends in 50 s; half of it must have sunk by then plus 30 s.
    assert refusal.retry_after_s == 80
    assert refusal.state.requests == WindowState(limit=2, remaining=0, reset_s=110)
    assert refusal.state.tokens == WindowState(limit=1000, remaining=980, reset_s=110)
    assert isinstance(await admit(limits, who, seconds=90), Admission)


async def test_an_admission_tells_what_remains_after_it(limits: RateLimits) -> None:
    who = caller(requests_per_minute=5, tokens_per_minute=100)
    admission = await limits.admit(who, tokens_bound=30, now=NOW)
    assert admission.headers_state.requests == WindowState(limit=5, remaining=4, reset_s=120)
    assert admission.headers_state.tokens == WindowState(limit=100, remaining=70, reset_s=120)


async def test_a_request_refused_for_its_tokens_uses_up_no_request(limits: RateLimits) -> None:
    who = caller(requests_per_minute=3, tokens_per_minute=100)
    for _ in range(10):
        refusal = await admit(limits, who, tokens=101)
        assert isinstance(refusal, RateLimited)
        assert refusal.which == "tokens"
    assert await count_admitted(limits, who, 10, tokens=1) == 3


async def test_a_request_refused_for_its_number_uses_up_no_tokens(limits: RateLimits) -> None:
    who = caller(requests_per_minute=1, tokens_per_minute=100)
    await count_admitted(limits, who, 10, tokens=40)
    refusal = await admit(limits, who, tokens=40)
    assert isinstance(refusal, RateLimited)
    assert refusal.state.tokens is not None
    assert refusal.state.tokens.remaining == 60


async def test_a_request_refused_for_those_in_flight_uses_up_nothing(limits: RateLimits) -> None:
    who = caller(requests_per_minute=5, max_in_flight=1)
    first = await limits.admit(who, tokens_bound=1, now=NOW)
    for _ in range(10):
        refusal = await admit(limits, who)
        assert isinstance(refusal, RateLimited)
        assert refusal.which == "in_flight"
        assert refusal.state.requests == WindowState(limit=5, remaining=4, reset_s=120)
    await first.done(1)
    second = await limits.admit(who, tokens_bound=1, now=NOW)
    assert second.headers_state.requests is not None
    assert second.headers_state.requests.remaining == 3


async def test_a_request_refused_by_a_rate_takes_no_slot(limits: RateLimits) -> None:
    who = caller(tokens_per_minute=100, max_in_flight=1)
    for _ in range(5):
        assert isinstance(await admit(limits, who, tokens=101), RateLimited)
    assert isinstance(await admit(limits, who, tokens=1), Admission)


async def test_tokens_that_were_not_used_are_given_back_once(limits: RateLimits) -> None:
    who = caller(tokens_per_minute=100)
    admission = await limits.admit(who, tokens_bound=100, now=NOW)
    assert isinstance(await admit(limits, who, tokens=1), RateLimited)
    await admission.done(20)
    await admission.done(20)
    assert isinstance(await admit(limits, who, tokens=81), RateLimited)
    assert isinstance(await admit(limits, who, tokens=80), Admission)


async def test_tokens_given_back_late_open_no_room_in_a_minute_that_never_counted_them(
    limits: RateLimits,
) -> None:
    who = caller(tokens_per_minute=100)
    admission = await limits.admit(who, tokens_bound=100, now=NOW)
    # Two minutes on nothing of it counts any more.
    assert isinstance(await admit(limits, who, tokens=100, seconds=125), Admission)
    await admission.done(0)
    assert isinstance(await admit(limits, who, tokens=1, seconds=125), RateLimited)


async def test_a_slot_is_freed_once(limits: RateLimits) -> None:
    who = caller(max_in_flight=2)
    first = await limits.admit(who, tokens_bound=1, now=NOW)
    await limits.admit(who, tokens_bound=1, now=NOW)
    await first.done(1)
    await first.done(1)
    assert await count_admitted(limits, who, 5) == 1


async def test_a_minutes_end_does_not_open_a_second_budget(limits: RateLimits) -> None:
    who = caller(requests_per_minute=60)
    assert await count_admitted(limits, who, 100, seconds=59) == 60
    # A fixed window would let another sixty in.
    assert await count_admitted(limits, who, 100, seconds=61) == 1


def test_an_unknown_storage_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'nonsense'"):
        open_counters("nonsense://user:password@host")
