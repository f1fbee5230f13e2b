"""The most tokens that a request can use, and the hold of what they cost: the cheapest bound where money is plenty, the
exact worst case before anybody is refused."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime

from billing.caller import Caller
from billing.errors import QuotaExceeded
from billing.ledger.ledger import Ledger
from billing.price import ModelPrice, worst_case
from billing.usage import Hold
from models.engine import TokenUsage


@dataclass(frozen=True, slots=True)
class MostTokens:
    """No outcome of a request has more tokens of either kind; `completion` is over all of its choices."""

    prompt: int
    completion: int

    def covers(self, usage: TokenUsage) -> bool:
        """No hold covers less than nothing either: no price is defined for it."""
        return 0 <= usage.prompt_tokens <= self.prompt and 0 <= usage.completion_tokens <= self.completion


@dataclass(slots=True)
class TokenTerms:
    """The tokens that a request can ask of its model.

    `bound` costs nothing to know; `least` is what the request asks for however short its prompt is; `count` has the
    prompt counted as the engine would feed it. Unless `bound_is_proven`, nothing is held before that.
    `counts_against_limits` is false for what the limits count elsewhere;
    `limits_completion` says whether generated tokens count against the project's limit, as read ones do.
    `enough` are the generated tokens that do for a caller who gave no limit, where more cannot be had; None: all or
    nothing.
    """

    model_id: str
    bound: MostTokens
    least: MostTokens
    count: Callable[[], Awaitable[MostTokens]]
    bound_is_proven: bool = True
    limits_completion: bool = True
    counts_against_limits: bool = True
    enough: int | None = None
    is_shrunk: bool = field(default=False, init=False)
    _counted: MostTokens | None = field(default=None, init=False)

    async def counted(self) -> MostTokens:
        """The exact worst case, counted once however often it is asked for. Raises what `count` raises."""
        if self._counted is None:
            self._counted = await self.count()
        return self._within(self._counted)

    @property
    def best_known(self) -> MostTokens:
        """Without asking anybody."""
        return self._within(self._counted or self.bound)

    def shrink(self) -> None:
        """Ask for no more generated tokens than are enough, where that is known."""
        self.is_shrunk = self.enough is not None

    def _within(self, most: MostTokens) -> MostTokens:
        if not self.is_shrunk or self.enough is None:
            return most
        return MostTokens(most.prompt, min(most.completion, self.enough))

    def limited(self, most: MostTokens) -> int:
        """The number of these tokens that count against the project's limit."""
        if not self.counts_against_limits:
            return 0
        return most.prompt + most.completion if self.limits_completion else most.prompt


@dataclass(frozen=True, slots=True)
class HoldTerms:
    """The caller who is to pay, the request and its price, and the most tokens that it can use."""

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
