"""`billing.price` against exact rational arithmetic."""

from __future__ import annotations

from dataclasses import replace
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.price import (
    MAX_MICRO_USD_PER_MTOK,
    MAX_TOKENS,
    WHOLE_PPM,
    Cost,
    ModelPrice,
    cost,
    usd,
    worst_case,
)

prices = st.builds(
    ModelPrice,
    model_id=st.just("m"),
    input_micro_usd_per_mtok=st.integers(0, MAX_MICRO_USD_PER_MTOK),
    output_micro_usd_per_mtok=st.integers(0, MAX_MICRO_USD_PER_MTOK),
    minimum_nano_usd=st.integers(0, 10**15),
    # Of most requests the whole price; of a batch's a part of it.
    ppm=st.just(WHOLE_PPM) | st.integers(0, WHOLE_PPM),
)
tokens = st.integers(0, MAX_TOKENS)


def exact_nano_usd(price: ModelPrice, prompt: int, completion: int) -> Fraction:
    per_token_usd = [
        Fraction(micro_usd, 10**6) / 10**6
        for micro_usd in (price.input_micro_usd_per_mtok, price.output_micro_usd_per_mtok)
    ]
    whole = (prompt * per_token_usd[0] + completion * per_token_usd[1]) * 10**9
    return whole * price.ppm / WHOLE_PPM


@given(prices, tokens, tokens, st.booleans())
def test_a_cost_is_the_exact_product_rounded_once_half_even(
    price: ModelPrice, prompt: int, completion: int, minimum: bool
) -> None:
    exact = exact_nano_usd(price, prompt, completion)
    found = cost(price, prompt_tokens=prompt, completion_tokens=completion, minimum=minimum)

    # Python rounds a Fraction half to even.
    assert found.subtotal_nano_usd == round(exact)
    least = Fraction(price.minimum_nano_usd * price.ppm, WHOLE_PPM)
    # Of what costs nothing, no part of the minimum is more.
    assert found.minimum_applied == (minimum and exact < least) or not price.ppm
    assert found.nano_usd == (round(max(least, exact)) if minimum else round(exact))
    assert found.nano_usd < 2**63


@given(prices, tokens, tokens, st.data())
def test_nothing_that_a_request_may_use_costs_more_than_its_worst_case(
    price: ModelPrice, prompt_bound: int, max_tokens: int, data: st.DataObject
) -> None:
    prompt = data.draw(st.integers(0, prompt_bound))
    completion = data.draw(st.integers(0, max_tokens))
    minimum = data.draw(st.booleans())
    bound = worst_case(price, prompt_tokens_bound=prompt_bound, max_tokens=max_tokens)
    found = cost(price, prompt_tokens=prompt, completion_tokens=completion, minimum=minimum)
    assert found.nano_usd <= bound.nano_usd


@given(st.integers(0, 10**9), st.integers(0, 10**6), st.integers(0, 3000))
def test_a_cost_agrees_with_decimal_arithmetic(price_micro: int, prompt: int, minimum: int) -> None:
    price = ModelPrice("m", price_micro, 0, minimum)
    nano = (Decimal(prompt) * Decimal(price_micro) / 1000).quantize(Decimal(1), ROUND_HALF_EVEN)
    found = cost(price, prompt_tokens=prompt, completion_tokens=0, minimum=True)
    assert found.nano_usd == max(int(nano), minimum)


@pytest.mark.parametrize(
    ("pico_usd", "nano_usd"),
    [(0, 0), (499, 0), (500, 0), (501, 1), (1499, 1), (1500, 2), (2500, 2), (2501, 3), (3500, 4)],
)
def test_a_tie_goes_to_the_even_nano_usd(pico_usd: int, nano_usd: int) -> None:
    found = cost(ModelPrice("m", pico_usd, 0, 0), prompt_tokens=1, completion_tokens=0, minimum=True)
    assert found == Cost(nano_usd, nano_usd, minimum_applied=False)


@pytest.mark.parametrize(
    ("prompt_tokens", "expected"),
    [
        (9, Cost(9000, 10_000, minimum_applied=True)),
        (10, Cost(10_000, 10_000, minimum_applied=False)),
        (11, Cost(11_000, 11_000, minimum_applied=False)),
    ],
)
def test_the_minimum_applies_only_under_it(prompt_tokens: int, expected: Cost) -> None:
    price = ModelPrice("m", 1_000_000, 0, 10_000)
    assert cost(price, prompt_tokens=prompt_tokens, completion_tokens=0, minimum=True) == expected


def test_the_minimum_is_left_out_where_the_caller_says_so() -> None:
    price = ModelPrice("m", 1_000_000, 0, 10_000)
    assert cost(price, prompt_tokens=0, completion_tokens=0, minimum=False) == Cost(0, 0, False)


def test_a_subtotal_a_pico_usd_short_of_the_minimum_is_under_it() -> None:
    price = ModelPrice("m", 999, 0, 1)
    assert cost(price, prompt_tokens=1, completion_tokens=0, minimum=True) == Cost(1, 1, True)


def test_a_figure_a_reader_can_check_by_hand() -> None:
    # $0.15 and $0.60 per million: 1,000 x 0.00000015 + 500 x 0.0000006 = $0.00045.
    price = ModelPrice("m", 150_000, 600_000, 0)
    found = cost(price, prompt_tokens=1000, completion_tokens=500, minimum=True)
    assert usd(found.nano_usd) == 0.00045


@given(st.integers(0, 2**63 - 1))
def test_usd_is_the_float_nearest_to_the_amount(nano: int) -> None:
    assert usd(nano) == float(Fraction(nano, 10**9))


@pytest.mark.parametrize("bad", [-1, MAX_MICRO_USD_PER_MTOK + 1])
def test_a_price_out_of_bounds_is_refused_by_name(bad: int) -> None:
    with pytest.raises(ValueError, match="output_micro_usd_per_mtok"):
        ModelPrice("m", 0, bad, 0)


@pytest.mark.parametrize("bad", [1.5, True, "1"])
def test_a_price_that_is_no_integer_is_refused(bad: object) -> None:
    with pytest.raises(TypeError, match="minimum_nano_usd"):
        ModelPrice("m", 0, 0, bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [-1, MAX_TOKENS + 1])
def test_token_counts_out_of_bounds_are_refused(bad: int) -> None:
    with pytest.raises(ValueError, match="prompt_tokens"):
        cost(ModelPrice("m", 1, 1, 1), prompt_tokens=bad, completion_tokens=0, minimum=True)


def test_cached_input_has_a_price_of_its_own_and_else_input_s() -> None:
    of_its_own = ModelPrice("m", 100_000, 400_000, 0, cached_input_micro_usd_per_mtok=10_000)
    charged = cost(of_its_own, prompt_tokens=1000, completion_tokens=10, minimum=True, cached_tokens=900)
    assert charged.nano_usd == (100 * 100_000 + 900 * 10_000 + 10 * 400_000) // 1000
    plain = ModelPrice("m", 100_000, 400_000, 0)
    assert cost(plain, prompt_tokens=1000, completion_tokens=10, minimum=True, cached_tokens=900) == cost(
        plain, prompt_tokens=1000, completion_tokens=10, minimum=True
    )


def test_cached_input_never_costs_more_than_input_and_never_counts_more_tokens_than_the_prompt() -> None:
    with pytest.raises(ValueError, match="cached_input_micro_usd_per_mtok"):
        ModelPrice("m", 100_000, 0, 0, cached_input_micro_usd_per_mtok=100_001)
    with pytest.raises(ValueError, match="cached_tokens"):
        cost(ModelPrice("m", 1, 1, 0), prompt_tokens=9, completion_tokens=0, minimum=True, cached_tokens=10)


few = st.integers(0, 3)
alike = st.builds(
    ModelPrice,
    model_id=st.just("m"),
    input_micro_usd_per_mtok=st.integers(3, 6),
    output_micro_usd_per_mtok=few,
    minimum_nano_usd=few,
    cached_input_micro_usd_per_mtok=st.none() | few,
    ppm=st.sampled_from([0, WHOLE_PPM // 2, WHOLE_PPM, 2 * WHOLE_PPM]),
)


@given(alike, alike, tokens, tokens, st.data())
def test_nothing_costs_more_at_a_price_that_is_below_another(
    price: ModelPrice, other: ModelPrice, prompt: int, completion: int, data: st.DataObject
) -> None:
    cached = data.draw(st.integers(0, prompt))
    minimum = data.draw(st.booleans())
    mine, its = (
        cost(
            each, prompt_tokens=prompt, completion_tokens=completion, cached_tokens=cached, minimum=minimum
        ).nano_usd
        for each in (price, other)
    )
    assert not price.is_below(price)
    assert mine <= its or not price.is_below(other)
    assert not (price.is_below(other) and other.is_below(price))


@pytest.mark.parametrize("of", ["input_micro_usd_per_mtok", "output_micro_usd_per_mtok", "minimum_nano_usd"])
def test_one_price_that_is_higher_is_enough_not_to_be_below(of: str) -> None:
    price = ModelPrice("m", 10, 10, 10, cached_input_micro_usd_per_mtok=5)
    assert replace(price, **{of: 9}).is_below(price)
    assert not replace(price, ppm=WHOLE_PPM // 2, **{of: 21}).is_below(price)
    assert not replace(price, cached_input_micro_usd_per_mtok=None, output_micro_usd_per_mtok=1).is_below(
        price
    )
