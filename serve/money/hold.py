"""The hold of a request: its cheapest bound where money is plenty, its exact worst case before anybody is refused."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from billing.caller import Caller
from billing.errors import QuotaExceeded
from billing.ledger.ledger import Ledger
from billing.price import ModelPrice, worst_case
from billing.usage import Hold
from serve.money.terms import MostTokens, TokenTerms


@dataclass(frozen=True, slots=True)
class HoldTerms:
    """Who is to pay for which request, and the most tokens that it can use."""

    caller: Caller
    price: ModelPrice
    pricing_version: int
    request_id: str
    tokens: TokenTerms
    # What was asked, as the usage event has it.
    route: str | None = None

    def amount_nano_usd(self, most: MostTokens) -> int:
        """The most that the request can cost with that many tokens."""
        worst = worst_case(self.price, prompt_tokens_bound=most.prompt, max_tokens=most.completion)
        return worst.nano_usd


async def open_hold(
    ledger: Ledger, terms: HoldTerms, most: MostTokens, *, clock: Callable[[], datetime]
) -> Hold:
    """Hold what that many tokens cost. Raises what `Ledger.hold` raises."""
    return await ledger.hold(
        terms.caller,
        model_id=terms.price.model_id,
        pricing_version=terms.pricing_version,
        amount_nano_usd=terms.amount_nano_usd(most),
        request_id=terms.request_id,
        now=clock(),
        route=terms.route,
    )


async def hold_worst_case(
    ledger: Ledger, terms: HoldTerms, *, clock: Callable[[], datetime]
) -> tuple[Hold, MostTokens]:
    """Hold the bound or, where that is more than is left, the worst case of the prompt as it is counted, and in the end
    no more of a reply than is enough; and the tokens that are paid for with it.

    Raises what `Ledger.hold` and the terms' `count` raise.
    """

    async def hold(most: MostTokens) -> tuple[Hold, MostTokens]:
        return await open_hold(ledger, terms, most, clock=clock), most

    if terms.caller.metered and not terms.tokens.bound_is_proven:
        await terms.tokens.counted()
    tried = terms.tokens.best_known
    try:
        return await hold(tried)
    except QuotaExceeded as refused:
        # No request asks for less, so a caller who cannot pay for that starts no replica.
        if terms.amount_nano_usd(terms.tokens.least) > refused.left_nano_usd:
            raise
        refusal = refused
    for may_shrink in (False, True):
        if may_shrink:
            terms.tokens.shrink()
        wanted = await terms.tokens.counted()
        if wanted == tried:
            continue
        try:
            return await hold(wanted)
        except QuotaExceeded as refused:
            tried, refusal = wanted, refused
    raise refusal
