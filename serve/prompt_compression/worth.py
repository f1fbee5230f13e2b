"""Whether compressing a block pays, at the prices in force: if not, it is sent whole, and its compression is free.

Decided from what comes before the block, never from the state of a cache: else a block would come out differently in
the next turn.
"""

from dataclasses import dataclass

from billing.price import PICO_PER_NANO, ModelPrice
from compression.pipeline.receipt import Receipt

# Each of the three costs that are compared is rounded to a nano-dollar by itself.
ROUNDING_PICO_USD = 2 * PICO_PER_NANO


@dataclass(slots=True)
class Worth:
    """Asked block by block, in the conversation's order. Prices are those of the chat's and the compression's model."""

    chat: ModelPrice
    compression: ModelPrice
    # Tokens that were certainly sent before the block.
    _sent_tokens: int = 0

    def pays(self, receipt: Receipt, added_tokens: int = 0) -> bool:
        """Whether the bill of no request gets higher by it: what a token saves at least, against what this costs at
        most. `added_tokens` are sent besides the output."""
        sent = receipt.output_tokens + added_tokens
        cost = self._cost_pico_usd(receipt)
        pays = sent < receipt.original_tokens and (
            not cost or self._saved_pico_usd(receipt.original_tokens, sent) >= cost + ROUNDING_PICO_USD
        )
        self._sent_tokens += sent if pays else receipt.original_tokens
        return pays

    def may_pay(self, receipt: Receipt) -> bool:
        """Whether it pays where the request's minimum is reached already: if not, it never does."""
        saved = receipt.tokens_saved * self.chat.cheapest_input_micro_usd_per_mtok
        return saved >= self._cost_pico_usd(receipt)

    def _saved_pico_usd(self, original: int, sent: int) -> int:
        """A token that a later turn finds cached is the cheapest; and below the minimum none costs anything."""
        a_token = self.chat.cheapest_input_micro_usd_per_mtok
        least = self.chat.minimum_nano_usd * PICO_PER_NANO
        whole = (self._sent_tokens + original) * a_token
        compressed = (self._sent_tokens + sent) * a_token
        return max(least, whole) - max(least, compressed)

    def _cost_pico_usd(self, receipt: Receipt) -> int:
        price = self.compression
        return (
            receipt.original_tokens * price.input_micro_usd_per_mtok
            + receipt.output_tokens * price.output_micro_usd_per_mtok
        )
