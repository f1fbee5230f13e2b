"""The hold of a request: its cheapest bound where money is plenty, its exact worst case before anybody is refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from billing.caller import Caller
from billing.errors import QuotaExceeded
from billing.ledger import Ledger
from billing.price import ModelPrice, worst_case
from billing.usage import Hold


@dataclass(frozen=True, slots=True)
class HoldTerms:
    """Who is to pay for which request, and the most tokens that it can come to."""

    caller: Caller
    price: ModelPrice
    pricing_version: int
    request_id: str
    prompt_tokens_bound: int
    completion_tokens_bound: int

    def amount_nano_usd(self, prompt_tokens: int) -> int:
        """What the request costs at most with a prompt of so many tokens."""
        worst = worst_case(
            self.price, prompt_tokens_bound=prompt_tokens, max_tokens=self.completion_tokens_bound
        )
        return worst.nano_usd


async def hold_worst_case(
    ledger: Ledger,
    terms: HoldTerms,
    *,
    count_prompt: Callable[[], Awaitable[int]],
    clock: Callable[[], datetime],
) -> Hold:
    """Hold the bound or, where that is more than is left, the worst case of the prompt as it is counted.

    Raises what `Ledger.hold` and `count_prompt` raise.
    """

    async def hold(amount_nano_usd: int) -> Hold:
        return await ledger.hold(
            terms.caller,
            model_id=terms.price.model_id,
            pricing_version=terms.pricing_version,
            amount_nano_usd=amount_nano_usd,
            request_id=terms.request_id,
            now=clock(),
        )

    try:
        return await hold(terms.amount_nano_usd(terms.prompt_tokens_bound))
    except QuotaExceeded as refused:
        # No prompt is shorter, so whoever cannot pay for this one starts no replica by asking.
        if terms.amount_nano_usd(1) > refused.left_nano_usd:
            raise
    return await hold(terms.amount_nano_usd(await count_prompt()))
