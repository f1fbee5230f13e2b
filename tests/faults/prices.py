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

    def document(self) -> dict[str, str]:
        return {
            "input_usd_per_mtok": self.input_usd_per_mtok,
            "output_usd_per_mtok": self.output_usd_per_mtok,
            "minimum_request_usd": self.minimum_request_usd,
        }

    def nano_usd(self, prompt_tokens: int, completion_tokens: int, *, minimum: bool = True) -> int:
        """Half-even to a nano-USD; `round` of a Fraction does just that."""
        tokens = prompt_tokens * Fraction(self.input_usd_per_mtok)
        tokens += completion_tokens * Fraction(self.output_usd_per_mtok)
        exact = max(tokens / 10**6, Fraction(self.minimum_request_usd) if minimum else Fraction(0))
        return round(exact * 10**9)


# Odd prices, so that costs must be rounded, and minimums that some of the replies are under.
PRICES = {
    price.model: price
    for price in (
        PinnedPrice("alpha", "0.123457", "0.411113", "0.000003"),
        PinnedPrice("beta", "1.500001", "6.000007", "0"),
        PinnedPrice("gamma", "0", "0.333333", "0.0000025"),
        PinnedPrice("delta", "0.05", "0", "0"),
        # A few replies of this one come to a cent, and to the limit of a workspace.
        PinnedPrice("epsilon", "0", "900.000001", "0"),
    )
}
# The compression model: its input is what costs.
COMPRESSION_PRICE = PinnedPrice("press", "70.000003", "0", "0")
