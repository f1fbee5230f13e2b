"""No bill is higher with compression than without it, whatever is cached and whatever the reply costs."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from billing.price import WHOLE_PPM, ModelPrice, cost
from compression.pipeline.compression_model import Receipt
from serve.prompt_compression.worth import BESIDE_TOKENS, BlockTokens, Worth


# What a receipt counts has nothing to do with what the engine counts.
class Sizes(NamedTuple):
    """Of a block in the engine's tokens, whole and compressed, and whole as the receipt counts it."""

    whole: int
    sent: int
    receipt: int

    @property
    def tokens(self) -> BlockTokens:
        return BlockTokens(self.whole, self.sent)


def receipt(original: int) -> Receipt:
    return Receipt(original, original // 3, 0.3, 1.0, "words", ())


blocks = st.builds(Sizes, st.integers(0, 20_000), st.integers(0, 20_000), st.integers(1, 20_000))
parts = st.one_of(st.just(WHOLE_PPM), st.integers(0, WHOLE_PPM))
chat_prices = st.integers(0, 10_000_000).flatmap(
    lambda most: st.builds(
        ModelPrice,
        model_id=st.just("chat"),
        input_micro_usd_per_mtok=st.just(most),
        output_micro_usd_per_mtok=st.integers(0, 10_000_000),
        minimum_nano_usd=st.one_of(st.just(0), st.integers(0, 10_000_000)),
        cached_input_micro_usd_per_mtok=st.one_of(st.none(), st.integers(0, most)),
    )
)
prices = st.builds(
    ModelPrice,
    model_id=st.just("compression"),
    input_micro_usd_per_mtok=st.one_of(st.just(0), st.integers(0, 1000), st.integers(0, 5_000_000)),
    output_micro_usd_per_mtok=st.just(0),
    minimum_nano_usd=st.just(0),
)


@settings(max_examples=150)
@given(
    chat_prices,
    prices,
    parts,
    st.lists(st.tuples(blocks, st.integers(-4, 4)), min_size=1, max_size=8),
    st.integers(0, 5000),
    st.integers(0, 3000),
    st.floats(0, 1),
    st.integers(0, 15),
)
def test_no_request_is_dearer_than_without_compression(
    chat: ModelPrice,
    price: ModelPrice,
    ppm: int,
    prompt: list[tuple[Sizes, int]],
    others: int,
    completion: int,
    cached_share: float,
    cached_less: int,
) -> None:
    chat, price = replace(chat, ppm=ppm), replace(price, ppm=ppm)
    worth = Worth(chat, price)
    chosen = [(sizes, beside, worth.pays(sizes.tokens, receipt(sizes.receipt))) for sizes, beside in prompt]
    # Each block may save less where it stands than it did by itself, or more.
    whole = others + sum(max(sizes.whole, sizes.sent) + 4 for sizes, _, _ in chosen)
    sent = whole - sum(sizes.whole - sizes.sent - beside for sizes, beside, pays in chosen if pays)
    charged = sum(sizes.receipt for sizes, _, pays in chosen if pays)

    def of_chat(prompt_tokens: int, cached_tokens: int) -> int:
        return cost(
            chat,
            prompt_tokens=prompt_tokens,
            completion_tokens=completion,
            cached_tokens=cached_tokens,
            minimum=True,
        ).nano_usd

    compression = cost(price, prompt_tokens=charged, completion_tokens=0, minimum=bool(charged)).nano_usd
    # As much of the whole prompt is cached as can be, and of the sent one what is cached of the rest, less what does
    # not fill a block of the cache.
    cached = int(min(whole - sent + cached_share * sent, whole))
    of_sent = max(0, cached - (whole - sent) - (cached_less if sent < whole else 0))
    assert of_chat(sent, min(sent, of_sent)) + compression <= of_chat(whole, cached)


FREE = ModelPrice("compression", 0, 0, 0)


def test_free_compression_pays_as_soon_as_it_surely_saves_a_token() -> None:
    worth = Worth(ModelPrice("chat", 100, 400, 10**9), FREE)
    assert worth.pays(BlockTokens(100, 99 - BESIDE_TOKENS), receipt(100))
    assert not worth.pays(BlockTokens(100, 100 - BESIDE_TOKENS), receipt(100))


def test_it_pays_only_at_the_price_of_cached_input() -> None:
    price, block = ModelPrice("compression", 20, 0, 0), BlockTokens(10_000, 3000)
    assert Worth(ModelPrice("chat", 100, 400, 0), price).pays(block, receipt(10_000))
    dear = ModelPrice("chat", 100, 400, 0, cached_input_micro_usd_per_mtok=10)
    assert not Worth(dear, price).pays(block, receipt(10_000))


def test_it_pays_in_the_engine_s_tokens_whatever_the_receipt_counts() -> None:
    chat, price = ModelPrice("chat", 100, 400, 0), ModelPrice("compression", 65, 0, 0)
    assert Worth(chat, price).pays(BlockTokens(780, 234), receipt(780))
    assert not Worth(chat, price).pays(BlockTokens(672, 210), receipt(780))


def test_what_is_saved_covers_the_rounding_of_all_three_costs() -> None:
    """600 picos are saved and 510 spent. In nanos that is nothing saved, since 1.4 and 0.8 are both 1, and 1 spent."""
    chat, price = ModelPrice("chat", 100, 0, 0), ModelPrice("compression", 510, 0, 0)
    costs = [cost(chat, prompt_tokens=n, completion_tokens=0, minimum=True).nano_usd for n in (14, 8)]
    spent = cost(price, prompt_tokens=1, completion_tokens=0, minimum=True).nano_usd
    assert (costs, spent) == ([1, 1], 1)
    assert not Worth(chat, price).pays(BlockTokens(6 + BESIDE_TOKENS, 0), receipt(1))
    assert Worth(chat, price).pays(BlockTokens(26 + BESIDE_TOKENS, 0), receipt(1))


def test_a_block_that_is_sent_whole_counts_towards_the_request_s_minimum() -> None:
    """Its tokens reach the minimum, so that what the next one saves is money."""
    chat, price = ModelPrice("chat", 1000, 0, 1000), ModelPrice("compression", 100, 0, 0)
    saves = BlockTokens(900, 100)
    assert not Worth(chat, price).pays(saves, receipt(900))
    worth = Worth(chat, price)
    assert not worth.pays(BlockTokens(1100, 1100), receipt(1100))
    assert worth.pays(saves, receipt(900))


def test_the_first_block_pays_for_what_the_prefix_cache_may_find_less_of() -> None:
    chat = ModelPrice("chat", 100, 400, 0, cached_input_micro_usd_per_mtok=10)
    small, large = BlockTokens(130, 0), BlockTokens(500, 200)
    assert not Worth(chat, FREE).pays(small, receipt(130))
    worth = Worth(chat, FREE)
    assert worth.pays(large, receipt(500))
    assert worth.pays(small, receipt(130))
