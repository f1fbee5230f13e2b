"""What a request must cost, in exact fractions and without `billing.price`: the harness's own arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class PinnedPrice:
    """The price of one model of the harness, as its configuration has it."""

    model: str
    input_usd_per_mtok: str
    output_usd_per_mtok: str
    minimum_request_usd: str
    cached_input_usd_per_mtok: str | None = None

    def document(self) -> dict[str, str]:
        cached = self.cached_input_usd_per_mtok
        return {
            "input_usd_per_mtok": self.input_usd_per_mtok,
            "output_usd_per_mtok": self.output_usd_per_mtok,
            "minimum_request_usd": self.minimum_request_usd,
            **({} if cached is None else {"cached_input_usd_per_mtok": cached}),
        }

    def nano_usd(
        self, prompt_tokens: int, completion_tokens: int, *, cached_tokens: int = 0, minimum: bool = True
    ) -> int:
        """Half-even to a nano-USD; `round` of a Fraction does just that."""
        tokens = (prompt_tokens - cached_tokens) * Fraction(self.input_usd_per_mtok)
        tokens += cached_tokens * Fraction(self.cached_input_usd_per_mtok or self.input_usd_per_mtok)
        tokens += completion_tokens * Fraction(self.output_usd_per_mtok)
        exact = max(tokens / 10**6, Fraction(self.minimum_request_usd) if minimum else Fraction(0))
        return round(exact * 10**9)


# Odd prices, so that costs must be rounded, and minimums that some of the replies are under.
PRICES = {
    price.model: price
    for price in (
        PinnedPrice("alpha", "0.123457", "0.411113", "0.000003"),
        PinnedPrice("beta", "1.500001", "6.000007", "0", cached_input_usd_per_mtok="0.150003"),
        PinnedPrice("gamma", "0", "0.333333", "0.0000025"),
        PinnedPrice("delta", "0.05", "0", "0"),
        # A few replies of this one come to a cent, and to the limit of a workspace.
        PinnedPrice("epsilon", "0", "900.000001", "0"),
    )
}
# The compression model: its input is what costs.
COMPRESSION_PRICE = PinnedPrice("press", "70.000003", "0", "0")
# Of chats' prompts: so cheap that it pays. Of the second one's tokenizer nothing is proven, so it counts before a hold.
PROMPT_COMPRESSION_PRICE = PinnedPrice("squeeze", "0.030001", "0", "0")
COUNTED_COMPRESSION_PRICE = PinnedPrice("squash", "0.020003", "0", "0")
COMPRESSION_PRICES = {
    price.model: price for price in (COMPRESSION_PRICE, PROMPT_COMPRESSION_PRICE, COUNTED_COMPRESSION_PRICE)
}
