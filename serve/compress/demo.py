"""The demo: compressions without a key, of bounded inputs, within limits for each address and for all together."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Send

from billing.caller import Caller, LimitState, ProjectLimits
from billing.errors import RateLimited
from billing.rate_limits.rate_limits import Admission, RateLimits
from compression.pipeline.compression_model import JobTerms, as_requests
from serve.compress.service import CompressService, PreparedCompression, compressed_fields, json_response
from serve.http.auth import client_of
from serve.http.replies import Client, WorkingReply, rate_limit_headers
from serve.http.request_body import InvalidBody, Issue

logger = logging.getLogger("pith.compress")


class DemoLimited(RateLimited):
    """The demo's limit of this address, or of all addresses, is used up. Nothing was counted."""

    def __init__(self, refused: RateLimited, whose: str) -> None:
        super().__init__(
            which="in_flight" if refused.which == "in_flight" else "requests",
            limit=refused.limit,
            retry_after_s=refused.retry_after_s,
            state=_in_requests(refused.state),
            scope="demo",
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


class DemoReply(WorkingReply):
    """A compression without a key: within the demo's limits, and free of charge."""

    def __init__(
        self,
        service: CompressService,
        limits: DemoLimits,
        address: str | None,
        prepared: PreparedCompression,
        request_id: str,
        *,
        deadline_s: float,
    ) -> None:
        super().__init__(request_id, logger)
        self._service = service
        self._limits = limits
        self._address = address
        self._prepared = prepared
        self._terms = JobTerms(payer=client_of(address), is_trial=True, deadline_s=deadline_s)

    async def work(self, send: Send, client: Client) -> Response:
        sizes = len(self._prepared.request.sizes)
        async with self._limits.admitted(self._address, sizes=sizes) as state:
            compressed = await self._service.compress_unmetered(self._prepared, self._terms)
        return json_response(compressed_fields(compressed), rate_limit_headers(state))


# A character outside the first plane is twelve bytes when JSON escapes it. A query of 20,000 such comes on top.
_MOST_BYTES_PER_CHAR = 12
_DEMO_OTHER_BYTES = 256 * 1024
# In messages of as many characters as the demo takes there are hundreds.
DEMO_MAX_VALUES = 4096


async def demo_body(request: Request, max_chars: int) -> bytes:
    """The body, of which no more is kept than an input within the cap can need: the client has no key."""
    most = max_chars * _MOST_BYTES_PER_CHAR + _DEMO_OTHER_BYTES
    kept = bytearray()
    async for piece in request.stream():
        # What is over is read and thrown away, because a client that still sends would not see the answer.
        kept += piece[: most + 1 - len(kept)]
    if len(kept) > most or getattr(request.state, "body_too_large", None) is not None:
        raise over_the_cap(("body",), max_chars)
    return bytes(kept)


def over_the_cap(loc: tuple[str, ...], max_chars: int) -> InvalidBody:
    message = (
        f"the demo takes an input of up to {max_chars:,} characters; with a key, POST /v1/compress takes more"
    )
    return InvalidBody((Issue("demo_input_too_large", loc, message, ctx={"max_characters": max_chars}),))
