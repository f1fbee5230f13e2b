"""A key's limits beside its project's: both count a request, or neither does."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from billing.caller import NO_LIMITS, Caller, ProjectLimits
from billing.errors import RateLimited
from billing.rate_limits.rate_limits import RateLimits

NOW = datetime(2026, 11, 22, 12, 0, 30, tzinfo=UTC)


def caller(of_key: ProjectLimits, of_project: ProjectLimits = NO_LIMITS, *, key: str = "key") -> Caller:
    return Caller("w", "p", key, True, of_project, key_limits=of_key, limits_key_id=key)


async def test_what_the_project_refuses_is_not_counted_against_the_key() -> None:
    limiter = RateLimits()
    who = caller(ProjectLimits(tokens_per_minute=100, max_in_flight=2), ProjectLimits(requests_per_minute=1))
    first = await limiter.admit(who, tokens_bound=30, now=NOW)
    assert (first.headers_state.requests, first.headers_state.tokens) != (None, None)
    for _ in range(5):
        with pytest.raises(RateLimited, match="project rate limit exceeded"):
            await limiter.admit(who, tokens_bound=30, now=NOW)
    await first.done(10)
    of_key = await limiter.admit(caller(who.key_limits), tokens_bound=90, now=NOW)
    assert of_key.headers_state.tokens is not None and of_key.headers_state.tokens.remaining == 0


async def test_what_the_key_refuses_is_not_counted_against_the_project() -> None:
    limiter, of_project = RateLimits(), ProjectLimits(requests_per_minute=2)
    who = caller(ProjectLimits(max_in_flight=1), of_project)
    first = await limiter.admit(who, tokens_bound=1, now=NOW)
    with pytest.raises(RateLimited, match="API key rate limit exceeded: 1 requests at the same time"):
        await limiter.admit(who, tokens_bound=1, now=NOW)
    await first.done(1)
    await (await limiter.admit(who, tokens_bound=1, now=NOW)).done(1)
    with pytest.raises(RateLimited, match="project rate limit"):
        await limiter.admit(caller(NO_LIMITS, of_project, key="another"), tokens_bound=1, now=NOW)


async def test_keys_do_not_count_for_each_other_unless_they_were_rotated() -> None:
    limiter, once = RateLimits(), ProjectLimits(requests_per_minute=1)
    await limiter.admit(caller(once), tokens_bound=1, now=NOW)
    await limiter.admit(caller(once, key="another"), tokens_bound=1, now=NOW)
    rotated = Caller("w", "p", "new", True, NO_LIMITS, key_limits=once, limits_key_id="key")
    with pytest.raises(RateLimited):
        await limiter.admit(rotated, tokens_bound=1, now=NOW)
