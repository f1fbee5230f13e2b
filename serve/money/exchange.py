"""One admitted and held chat request: its chunks, and the one settlement or release that ends it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime

from billing.caller import LimitState
from billing.errors import UsageNotRecorded
from billing.ledger.ledger import Ledger
from billing.price import Cost, ModelPrice, cost
from billing.usage import Hold, Outcome, Settlement, UsageFigures
from models.engine import Engine, EngineChunk, EngineRequest, TokenUsage
from models.errors import EngineFailed
from serve.http.disconnect import Client
from serve.metrics.chat import ObservedChat
from serve.money.terms import MostTokens

logger = logging.getLogger("pith.chat")


METERING_HEADER = "X-Service-Metering-Status"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one request used and cost, and whether that is on record."""

    usage: TokenUsage
    price: ModelPrice
    cost: Cost
    settlement: Settlement


class Exchange:
    """One admitted and held request. Iterate `chunks`, then `settle`."""

    def __init__(
        self,
        *,
        engine: Engine,
        request: EngineRequest,
        hold: Hold,
        most: MostTokens,
        price: ModelPrice,
        limits: LimitState,
        ledger: Ledger,
        observed: ObservedChat,
        clock: Callable[[], datetime],
    ) -> None:
        self.hold = hold
        self.limits = limits
        self.usage = TokenUsage()
        self.delivered = False
        # What was written of it, once it was settled.
        self.receipt: Receipt | None = None
        # Set by who listens to it: a cancellation while it is there is a server that stops.
        self.client = Client()
        self._engine = engine
        self._request = request
        self._most = most
        self._price = price
        self._ledger = ledger
        self._observed = observed
        self._clock = clock
        self._settling: asyncio.Task[Receipt] | None = None
        self._released = False

    @property
    def counted_tokens(self) -> int:
        """What counts against the project's limit: nothing of a request that failed by our fault and was given back."""
        return 0 if self._released else self.usage.total_tokens

    async def chunks(self) -> AsyncGenerator[EngineChunk, None]:
        """The engine's chunks; `usage` follows them. Raises what `Engine.generate` raises."""
        async with aclosing(self._engine.generate(self._request)) as chunks:
            async for chunk in chunks:
                self._take(chunk.usage)
                yield chunk

    def _take(self, usage: TokenUsage) -> None:
        """The usage so far, as long as it is paid for: what was held is all that this request can ever be charged."""
        most = self._most
        if self.hold.kind != "not_applicable" and (
            usage.prompt_tokens > most.prompt or usage.completion_tokens > most.completion
        ):
            self._observed.exceed()
            logger.critical("%s: %r is more than was held: %r", self._request.model_id, usage, most)
            raise EngineFailed(f"{self._request.model_id}: the engine counted more tokens than it had said")
        self.usage = usage

    def begin_delivery(self) -> None:
        """For who sends the reply, before its first byte leaves."""
        self.delivered = True
        self._observed.deliver()

    async def settle(self, outcome: Outcome) -> Receipt:
        """Write what was used, once, and to the end even when the caller is cancelled meanwhile."""
        if self._settling is None:
            self._settling = asyncio.create_task(self._settle_and_count(outcome))
        return await asyncio.shield(self._settling)

    async def _settle_and_count(self, outcome: Outcome) -> Receipt:
        try:
            self.receipt = receipt = await self._settle(outcome)
        except UsageNotRecorded:
            self._observed.lose()
            raise
        self._observed.settle(receipt.usage, receipt.cost, receipt.settlement.status)
        return receipt

    async def _settle(self, outcome: Outcome) -> Receipt:
        # A failure is our fault: what was delivered is paid for, and no minimum is asked.
        charged = cost(
            self._price,
            prompt_tokens=self.usage.prompt_tokens,
            completion_tokens=self.usage.completion_tokens,
            minimum=outcome != "failed",
        )
        settlement = await self._ledger.settle(
            self.hold,
            figures=UsageFigures(
                prompt_tokens=self.usage.prompt_tokens,
                completion_tokens=self.usage.completion_tokens,
                cached_tokens=self.usage.cached_tokens,
                stream=self._request.stream,
            ),
            cost=charged,
            outcome=outcome,
            now=self._clock(),
        )
        return Receipt(self.usage, self._price, charged, settlement)

    async def close(self, failure: BaseException) -> None:
        """Settle what was done before `failure`, or release the hold where nobody owes for it."""
        is_our_fault = isinstance(failure, Exception) or not self.client.gone
        if self._settling is not None:
            await asyncio.shield(self._settling)
        elif self._is_owed(is_our_fault):
            await self.settle("failed" if is_our_fault else "disconnected")
        else:
            self._released = True
            await asyncio.shield(asyncio.create_task(self._ledger.release(self.hold, now=self._clock())))

    def _is_owed(self, is_our_fault: bool) -> bool:
        """Who left owes for a prompt that the engine was given, and for what it made of it; nobody pays for a reply of
        which only an error was seen."""
        if is_our_fault:
            return self.delivered and self.usage.completion_tokens > 0
        return self.usage.prompt_tokens > 0
