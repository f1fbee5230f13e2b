"""A request's way to its work: the price in force, its project's limits, the hold of its worst case, and its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from billing.caller import Caller, LimitState
from billing.ledger.ledger import Ledger
from billing.ledger.price_list import PriceList
from billing.rate_limits.rate_limits import RateLimits
from billing.usage import MeteringStatus
from serve.http.disconnect import Client
from serve.http.openapi import METERING_HEADER
from serve.http.rate_limit_headers import rate_limit_headers
from serve.money.held_request import HeldRequest, Observed
from serve.money.hold import HoldTerms, hold_worst_case
from serve.money.price_book import PriceBook, price_of
from serve.money.terms import TokenTerms


@dataclass(frozen=True, slots=True)
class Admissions:
    """Lets requests of every kind in, and holds the money of those that were let in."""

    prices: PriceBook
    ledger: Ledger
    limiter: RateLimits
    clock: Callable[[], datetime]

    @asynccontextmanager
    async def admit(
        self, caller: Caller, request_id: str, parts: Sequence[TokenTerms]
    ) -> AsyncIterator[Admitted]:
        """One request within its project's limits; each of its parts is held by itself, in `Admitted.hold`.

        It is counted by the cheap bounds of its parts, and by their exact size before it is refused. Raises
        `PricesUnavailable` before that, and what `RateLimits.admit` and the parts' `count` raise.
        """
        prices = await self.prices.current()

        async def count() -> int:
            return sum([part.limited(await part.counted()) for part in parts])

        admission = await self.limiter.admit(
            caller,
            tokens_bound=sum(part.limited(part.bound) for part in parts),
            tokens_least=sum(part.limited(part.least) for part in parts),
            count_tokens=count,
            now=self.clock(),
        )
        admitted = Admitted(self, caller, request_id, prices, admission.headers_state)
        try:
            yield admitted
        finally:
            await admission.done(admitted.used_tokens)


@dataclass(slots=True)
class Admitted:
    """A request that its project's limits let in. `limits` is what they say of it, `used_tokens` what counts so far."""

    admissions: Admissions
    caller: Caller
    request_id: str
    prices: PriceList
    limits: LimitState
    used_tokens: int = 0

    def reply_headers(self, status: MeteringStatus) -> dict[str, str]:
        """The reply headers on money: whether its usage is on record, and what is left of the limits."""
        return {METERING_HEADER: status, **rate_limit_headers(self.limits)}

    @asynccontextmanager
    async def hold(
        self,
        tokens: TokenTerms,
        observed: Observed,
        *,
        stream: bool = False,
        client: Client | None = None,
        check: Callable[[], object] | None = None,
    ) -> AsyncIterator[HeldRequest]:
        """Hold the worst-case cost, and on the way out settle or release, however that comes.

        `check` is work that can refuse the request: the limits bound it, and nothing is held before it. Raises what it
        raises, and what `Ledger.hold` and the terms' `count` raise.
        """
        ledger, clock = self.admissions.ledger, self.admissions.clock
        held: HeldRequest | None = None
        try:
            if check is not None:
                check()
            price = price_of(self.prices, tokens.model_id)
            terms = HoldTerms(self.caller, price, self.prices.version, self.request_id, tokens)
            hold, most = await hold_worst_case(ledger, terms, clock=clock)
            held = HeldRequest(hold, most, terms, stream, client or Client(), ledger, observed, clock)
            yield held
            if not held.is_settled:
                raise RuntimeError(f"a request for {tokens.model_id} ended without its settlement")
        except BaseException as failure:
            observed.fail(failure)
            if held is not None:
                await held.close(failure)
            raise
        finally:
            observed.end()
            if held is not None:
                self.used_tokens += held.limited_tokens
