"""No bill is higher with compression than without it, whatever is cached and whatever the reply costs."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from billing.price import ModelPrice, cost
from compression.pipeline.receipt import Receipt
from serve.prompt_compression.worth import Worth


class Sizes(NamedTuple):
    original: int
    output: int


def receipt(sizes: Sizes) -> Receipt:
    return Receipt(sizes.original, sizes.output, 0.3, 1.0, "words", ())


blocks = st.integers(1, 20_000).flatmap(lambda n: st.builds(Sizes, st.just(n), st.integers(0, n)))
chat_prices = st.integers(0, 10_000_000).flatmap(
    lambda most: st.builds(
        ModelPrice,
        model_id=st.just("chat"),
        input_micro_usd_per_mtok=st.just(most),
        output_micro_usd_per_mtok=st.integers(0, 10_000_000),
        minimum_nano_usd=st.integers(0, 10_000_000),
        cached_input_micro_usd_per_mtok=st.one_of(st.none(), st.integers(0, most)),
    )
)
prices = st.builds(
    ModelPrice,
    model_id=st.just("compression"),
    input_micro_usd_per_mtok=st.integers(0, 5_000_000),
    output_micro_usd_per_mtok=st.just(0),
    minimum_nano_usd=st.just(0),
)


@given(
    chat_prices,
    prices,
    st.lists(blocks, min_size=1, max_size=8),
    st.integers(0, 5000),
    st.integers(0, 3000),
    st.floats(0, 1),
)
def test_no_request_is_dearer_than_without_compression(
    chat: ModelPrice,
    price: ModelPrice,
    prompt: list[Sizes],
    others: int,
    completion: int,
    cached_share: float,
) -> None:
    worth = Worth(chat, price)
    chosen = [(sizes, worth.pays(receipt(sizes))) for sizes in prompt]
    whole = others + sum(sizes.original for sizes in prompt)
    sent = others + sum(sizes.output if pays else sizes.original for sizes, pays in chosen)
    charged = sum(sizes.original for sizes, pays in chosen if pays)

    def of_chat(prompt_tokens: int, cached_tokens: int) -> int:
        return cost(
            chat,
            prompt_tokens=prompt_tokens,
            completion_tokens=completion,
            cached_tokens=cached_tokens,
            minimum=True,
        ).nano_usd

    compression = cost(price, prompt_tokens=charged, completion_tokens=0, minimum=bool(charged)).nano_usd
    # As much of the whole prompt is cached as can be, and of the sent one what is cached of the rest.
    cached = int(min(whole - sent + cached_share * sent, whole))
    assert of_chat(sent, min(sent, max(0, cached - (whole - sent)))) + compression <= of_chat(whole, cached)


def test_free_compression_pays_as_soon_as_it_saves_a_token() -> None:
    free = ModelPrice("compression", 0, 0, 0)
    worth = Worth(ModelPrice("chat", 100, 400, 10**9), free)
    assert worth.pays(receipt(Sizes(100, 99)))
    assert not worth.pays(receipt(Sizes(100, 100)))


def test_it_pays_only_at_the_price_of_cached_input() -> None:
    price = ModelPrice("compression", 20, 0, 0)
    assert Worth(ModelPrice("chat", 100, 400, 0), price).pays(receipt(Sizes(10_000, 3000)))
    dear = ModelPrice("chat", 100, 400, 0, cached_input_micro_usd_per_mtok=10)
    assert not Worth(dear, price).pays(receipt(Sizes(10_000, 3000)))
