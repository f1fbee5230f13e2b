"""The worth of compressing a block, at the prices in force: if it does not pay, the block is sent whole, for nothing.

Decided from what comes before the block, never from the state of a cache: else a block would come out differently in
the next turn. What is saved is counted in the chat's bill, in its engine's tokens, and what it costs in the
compression's, in the receipt's.
"""

from dataclasses import dataclass

from billing.price import PICO_PER_NANO, WHOLE_PPM, ModelPrice
from compression.pipeline.compression_model import Receipt

# Each of the three costs that are compared is rounded to a nano-dollar by itself.
ROUNDING_PICO_USD = 2 * PICO_PER_NANO
# How much a block's tokens may differ from their count, of all that stands beside them elsewhere: one at each end, of
# the whole block and of what it became.
BESIDE_TOKENS = 4
# A prefix cache finds whole blocks of tokens: of a shorter prompt it may find so many less. vLLM's are of 16.
CACHE_BLOCK_TOKENS = 16


@dataclass(frozen=True, slots=True)
class BlockTokens:
    """A block in its engine's tokens: whole, and as it is sent once it is compressed."""

    whole: int
    sent: int

    @property
    def saved(self) -> int:
        """At least, wherever it stands."""
        return self.whole - self.sent - BESIDE_TOKENS


@dataclass(slots=True)
class Worth:
    """Asked block by block, in the conversation's order. Prices are those of the chat's and the compression's model."""

    chat: ModelPrice
    compression: ModelPrice
    # Tokens that were certainly sent before the block.
    _sent_tokens: int = 0
    # A block was compressed, and it pays for what the prefix cache may find less of.
    _has_compressed: bool = False

    def pays(self, tokens: BlockTokens, receipt: Receipt) -> bool:
        """True if the bill of no request gets higher by it: what a token saves at least, against what this costs at
        most."""
        pays = tokens.saved > 0 and self._saved_pico_usd(tokens) >= self._needed_pico_usd(receipt)
        self._sent_tokens += max(0, (tokens.sent if pays else tokens.whole) - BESIDE_TOKENS)
        self._has_compressed |= pays
        return pays

    def may_pay(self, tokens: BlockTokens, receipt: Receipt) -> bool:
        """True if it pays where the request's minimum is reached already: if not, it never does."""
        saved = tokens.saved * self.chat.cheapest_input_micro_usd_per_mtok * self.chat.ppm
        return saved >= self._cost_pico_usd(receipt)

    def _saved_pico_usd(self, tokens: BlockTokens) -> int:
        """A token that a later turn finds cached is the cheapest; and below the minimum none costs anything."""
        a_token = self.chat.cheapest_input_micro_usd_per_mtok
        least = self.chat.minimum_nano_usd * PICO_PER_NANO
        # What is sent is the least that can be, and what is saved of it too.
        sent = self._sent_tokens + max(0, tokens.sent - BESIDE_TOKENS)
        return (max(least, (sent + tokens.saved) * a_token) - max(least, sent * a_token)) * self.chat.ppm

    def _needed_pico_usd(self, receipt: Receipt) -> int:
        cost = self._cost_pico_usd(receipt)
        rounding = ROUNDING_PICO_USD * WHOLE_PPM if cost else 0
        return cost + rounding + (0 if self._has_compressed else self._less_cached_pico_usd())

    def _less_cached_pico_usd(self) -> int:
        cached_less = self.chat.input_micro_usd_per_mtok - self.chat.cheapest_input_micro_usd_per_mtok
        return (CACHE_BLOCK_TOKENS - 1) * cached_less * self.chat.ppm

    def _cost_pico_usd(self, receipt: Receipt) -> int:
        """In millionths of it, as what is saved: the parts of the prices that are charged are exact in them."""
        price = self.compression
        return price.ppm * (
            receipt.original_tokens * price.input_micro_usd_per_mtok
            + receipt.output_tokens * price.output_micro_usd_per_mtok
        )
