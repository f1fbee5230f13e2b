"""One request whose worst case is held: what it has used, and the one settlement or release that ends it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from billing.errors import UsageNotRecorded
from billing.ledger.ledger import Ledger
from billing.price import Cost, ModelPrice, cost
from billing.usage import Hold, MeteringStatus, Outcome, Settlement, UsageFigures
from models.engine import TokenUsage
from serve.http.disconnect import Client
from serve.money.hold import HoldTerms
from serve.money.terms import MostTokens


class MoreThanHeld(Exception):
    """The model counted more tokens than were held for it. That is its fault: they are not charged."""


class Observed(Protocol):
    """Counts one request of any kind. A failure is reported to it before the hold is settled or released."""

    def settle(self, usage: TokenUsage, cost: Cost, status: MeteringStatus) -> None: ...

    def lose(self) -> None:
        """What was used is in neither the ledger nor the spool."""
        ...

    def fail(self, error: BaseException) -> None: ...

    def end(self) -> None:
        """On every way out."""
        ...


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one request used and cost, and whether that is on record."""

    usage: TokenUsage
    price: ModelPrice
    cost: Cost
    settlement: Settlement


@dataclass(slots=True, eq=False)
class HeldRequest:
    """Tell it what was used, then `settle`: chat, compression and whatever else is paid for by its tokens.

    It is made by `serve.money.admission.Admitted.hold`, which closes it however the work ends. `client` tells a client
    that leaves from a server that stops.
    """

    hold: Hold
    most: MostTokens
    terms: HoldTerms
    stream: bool
    client: Client
    ledger: Ledger
    observed: Observed
    clock: Callable[[], datetime]
    usage: TokenUsage = field(default=TokenUsage(), init=False)
    # Set before the first byte of the reply leaves: what was delivered is paid for, even when the rest fails.
    delivered: bool = field(default=False, init=False)
    # What was written of it, once it was settled.
    receipt: Receipt | None = field(default=None, init=False)
    _settling: asyncio.Task[Receipt | UsageNotRecorded] | None = field(default=None, init=False)
    _released: bool = field(default=False, init=False)

    @property
    def is_settled(self) -> bool:
        """Whether a settlement has begun; it goes on to its end by itself."""
        return self._settling is not None

    @property
    def limited_tokens(self) -> int:
        """What counts against the project's limit: nothing of a request that failed by our fault and was given back."""
        used = MostTokens(self.usage.prompt_tokens, self.usage.completion_tokens)
        return 0 if self._released else self.terms.tokens.limited(used)

    def use(self, usage: TokenUsage) -> None:
        """The usage so far: what was held is all that this request can ever be charged. Raises `MoreThanHeld`."""
        if self.hold.kind != "not_applicable" and not self.most.covers(usage):
            raise MoreThanHeld(f"usage {usage!r} exceeds the hold {self.most!r}")
        self.usage = usage

    async def settle(self, outcome: Outcome, *, receipt: str | None = None) -> Receipt:
        """Write what was used, once, and to the end even if the caller is cancelled.

        `receipt` is the usage log's, as JSON. Raises `UsageNotRecorded`.
        """
        if self._settling is None:
            prompt, completion = self.usage.prompt_tokens, self.usage.completion_tokens
            figures = UsageFigures(prompt, completion, self.usage.cached_tokens, self.stream, receipt)
            # A failure is our fault: what was delivered is paid for, and no minimum is asked.
            minimum = outcome != "failed"
            charged = cost(
                self.terms.price, prompt_tokens=prompt, completion_tokens=completion, minimum=minimum
            )
            self._settling = asyncio.create_task(self._write(outcome, figures, charged))
        written = await asyncio.shield(self._settling)
        if isinstance(written, UsageNotRecorded):
            raise written
        return written

    async def _write(
        self, outcome: Outcome, figures: UsageFigures, charged: Cost
    ) -> Receipt | UsageNotRecorded:
        """A loss is returned rather than raised: after a client left, nobody awaits this task to see its exception."""
        try:
            settlement = await self.ledger.settle(
                self.hold, figures=figures, cost=charged, outcome=outcome, now=self.clock()
            )
        except UsageNotRecorded as lost:
            self.observed.lose()
            return lost
        self.receipt = Receipt(self.usage, self.terms.price, charged, settlement)
        self.observed.settle(self.usage, charged, settlement.status)
        return self.receipt

    async def close(self, failure: BaseException) -> None:
        """Settle what was done before `failure`, or release the hold if nothing is owed."""
        if self._settling is not None:
            # It finishes on its own, and no one waits for its result any more.
            return
        is_our_fault = isinstance(failure, Exception) or not self.client.gone
        if self._is_owed(is_our_fault):
            await self.settle("failed" if is_our_fault else "disconnected")
        else:
            self._released = True
            # The ledger's write goes on to its end when this is cancelled.
            await self.ledger.release(self.hold, now=self.clock())

    def _is_owed(self, is_our_fault: bool) -> bool:
        """A caller who left owes for the prompt given to the model and for what it generated; a reply of which only
        an error was delivered is free."""
        if is_our_fault:
            return self.delivered and self.usage.completion_tokens > 0
        return self.usage.prompt_tokens > 0
