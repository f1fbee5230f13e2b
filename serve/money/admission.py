"""A request's way past its project's limits: by its cheap bound, and by its exact size before it is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from billing.caller import Caller
from billing.rate_limits.rate_limits import Admission, RateLimits
from serve.money.terms import TokenTerms


async def admit_worst_case(
    limiter: RateLimits, caller: Caller, tokens: TokenTerms, *, clock: Callable[[], datetime]
) -> Admission:
    """Raises what `RateLimits.admit` and the terms' `count` raise."""

    async def count() -> int:
        return (await tokens.counted()).total

    return await limiter.admit(
        caller,
        tokens_bound=tokens.bound.total,
        tokens_least=tokens.least.total,
        count_tokens=count,
        now=clock(),
    )
