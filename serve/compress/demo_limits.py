"""The demo route's limits: a minute's requests of one address, and of all addresses together."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import ClassVar

from billing.caller import Caller, LimitState, ProjectLimits
from billing.errors import RateLimited
from billing.rate_limits.rate_limits import Admission, RateLimits
from compression.pipeline.request import as_requests
from serve.http.limits import client_of


class DemoLimited(RateLimited):
    """The demo's limit of this address, or of all addresses, is used up. Nothing was counted."""

    scope: ClassVar[str] = "demo"

    def __init__(self, refused: RateLimited, whose: str) -> None:
        super().__init__(
            which="in_flight" if refused.which == "in_flight" else "requests",
            limit=refused.limit,
            retry_after_s=refused.retry_after_s,
            state=_in_requests(refused.state),
        )
        span = "at the same time" if refused.which == "in_flight" else "a minute"
        self.args = (f"demo limit exceeded: {refused.limit} requests {span} {whose}",)


class DemoLimits:
    """Counts in the server's own `RateLimits`, under projects that no account has.

    Requests are counted there as tokens, one each and more for one with `sizes`, because tokens can be given back. The
    limit of all is asked first, so that no more addresses are remembered than that limit lets in, however many try.
    """

    def __init__(
        self,
        limiter: RateLimits,
        *,
        requests_per_minute_per_address: int,
        requests_per_minute: int,
        max_in_flight: int,
        clock: Callable[[], datetime],
    ) -> None:
        self._limiter = limiter
        self._each = ProjectLimits(tokens_per_minute=requests_per_minute_per_address)
        self._all = ProjectLimits(tokens_per_minute=requests_per_minute, max_in_flight=max_in_flight)
        self._clock = clock

    @asynccontextmanager
    async def admitted(self, address: str | None, *, sizes: int = 0) -> AsyncIterator[LimitState]:
        """Count one request of this client, with so many `sizes`; yields what its address has left. It counts as no
        more than a minute has, or it could never be answered.

        Raises `DemoLimited` or `LimitsUnavailable`.
        """
        cost = min(as_requests(sizes), self._each.tokens_per_minute or 1, self._all.tokens_per_minute or 1)
        everyone = await self._admit("demo", self._all, cost, "from all addresses together")
        counted = 0
        try:
            own = await self._admit(f"demo:{client_of(address)}", self._each, cost, "from each address")
            counted = cost
            try:
                yield _in_requests(own.headers_state)
            finally:
                await own.done(cost)
        finally:
            await everyone.done(counted)

    async def count(self, address: str | None) -> None:
        """One request of this client that was refused for what it asks. Raises as `admitted`."""
        async with self.admitted(address):
            pass

    async def _admit(self, name: str, limits: ProjectLimits, cost: int, whose: str) -> Admission:
        caller = Caller(workspace_id="demo", project_id=name, key_id="demo", metered=False, limits=limits)
        try:
            return await self._limiter.admit(caller, tokens_bound=cost, now=self._clock())
        except RateLimited as refused:
            raise DemoLimited(refused, whose) from None


def _in_requests(state: LimitState) -> LimitState:
    return LimitState(requests=state.tokens, tokens=None)
