"""The measured saving and its interval: of simple sides, of too few, and how often it is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from billing.books.saving import MIN_CONVERSATIONS, Side, _t, saving_between

Draw = Callable[[np.random.Generator, int, float], "tuple[np.ndarray, np.ndarray]"]


def side(tokens: np.ndarray, cost: np.ndarray) -> Side:
    return Side(
        len(tokens),
        3 * len(tokens),
        int(tokens.sum()),
        int(cost.sum()),
        float((tokens**2).sum()),
        float((cost**2).sum()),
        float((tokens * cost).sum()),
    )


def alike(n: int, nano_usd: float) -> Side:
    tokens = np.full(n, 1000.0)
    return side(tokens, tokens * nano_usd)


def test_sides_without_any_spread_give_the_ratio_and_no_width() -> None:
    saving = saving_between(alike(500, 600), alike(60, 1000))
    assert saving is not None
    assert saving.share == pytest.approx(0.4) and saving.low == pytest.approx(0.4, abs=1e-6)
    assert saving.high == pytest.approx(0.4, abs=1e-6)


def test_a_side_that_got_longer_conversations_is_not_dearer_for_it() -> None:
    rng = np.random.default_rng(7)
    short, long = rng.uniform(100, 200, 300), rng.uniform(5000, 9000, 300)
    saving = saving_between(side(long, long * 500), side(short, short * 1000))
    assert saving is not None and saving.share == pytest.approx(0.5, abs=0.01)


def test_what_costs_more_is_a_saving_below_zero() -> None:
    saving = saving_between(alike(500, 1100), alike(500, 1000))
    assert saving is not None and saving.share == pytest.approx(-0.1)


@pytest.mark.parametrize("few", ["treated", "holdout"])
def test_too_few_conversations_on_either_side_say_nothing(few: str) -> None:
    sides = {name: alike(MIN_CONVERSATIONS, 1000) for name in ("treated", "holdout")}
    assert saving_between(**sides) is not None
    sides[few] = alike(MIN_CONVERSATIONS - 1, 1000)
    assert saving_between(**sides) is None


def test_many_of_which_one_is_nearly_everything_are_too_few() -> None:
    tokens = np.full(200, 1.0)
    tokens[0] = 10**7
    assert saving_between(side(tokens, tokens * 1000), alike(200, 1000)) is None


@pytest.mark.parametrize("empty", [{"tokens": 0}, {"cost_nano_usd": 0}])
def test_sides_that_cost_nothing_say_nothing(empty: dict[str, int]) -> None:
    plain = alike(100, 1000)
    assert saving_between(replace(plain, **empty), plain) is None
    assert saving_between(plain, replace(plain, **empty)) is None


@pytest.mark.parametrize(("degrees", "quantile"), [(6, 2.4469), (10, 2.2281), (49, 2.0096), (1000, 1.9623)])
def test_the_quantile_is_students(degrees: float, quantile: float) -> None:
    assert _t(degrees) == pytest.approx(quantile, rel=1e-3)


# --- coverage ----------------------------------------------------------------------------------------------------


def agent_sessions(rng: np.random.Generator, n: int, kept: float) -> tuple[np.ndarray, np.ndarray]:
    """Sessions whose prompt grows by a tool's result in each turn: tokens, and what they cost at 1,000 nano-dollars a
    token, 100 of cached ones, 4,000 of a completion; of each result `kept` is sent."""
    turns = 1 + rng.geometric(0.12, n)
    tokens, cost = np.zeros(n), np.zeros(n)
    for index, count in enumerate(turns):
        results = rng.lognormal(6, 0.8, count)
        said = rng.lognormal(4, 0.5, count)
        whole = 800 + np.cumsum(results + said)
        sent = 800 + np.cumsum(results * kept + said)
        cached = np.concatenate(([0.0], sent[:-1])) * (rng.random(count) < 0.9)
        tokens[index] = whole.sum()
        cost[index] = ((sent - cached) * 1000 + cached * 100 + said * 4000).sum()
    return tokens, cost


def log_normal(sigma: float, slope: float) -> Draw:
    """Sizes with a tail; the cost of a token falls with the size (`slope` below 0), or has nothing to do with it."""

    def draw(rng: np.random.Generator, n: int, rate: float) -> tuple[np.ndarray, np.ndarray]:
        z = rng.standard_normal(n)
        tokens = np.exp(8 + sigma * z)
        return tokens, tokens * rate * 1000 * np.exp(0.3 * rng.standard_normal(n) + slope * z)

    return draw


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("draw", "held_out", "least"),
    [
        pytest.param(agent_sessions, 50, 0.90, id="agents' sessions"),
        pytest.param(agent_sessions, 200, 0.91, id="many agents' sessions"),
        pytest.param(log_normal(0.7, 0.0), 50, 0.92, id="short tails"),
        pytest.param(log_normal(1.0, -0.15), 50, 0.91, id="cheaper when long"),
        pytest.param(log_normal(1.4, 0.0), 50, 0.92, id="long tails"),
        pytest.param(log_normal(1.4, -0.15), 50, 0.89, id="long tails, cheaper when long"),
    ],
)
def test_the_interval_has_the_truth_as_often_as_it_says(draw: Draw, held_out: int, least: float) -> None:
    """Both sides are drawn from conversations whose saving is known. Of 1,500 trials two standard errors are 1.5%."""
    rng = np.random.default_rng(20261122)
    size = 40_000
    treated, whole = draw(rng, size, 0.6), draw(rng, size, 1.0)
    truth = 1 - (treated[1].sum() / treated[0].sum()) / (whole[1].sum() / whole[0].sum())
    said, hits = 0, 0
    for _ in range(1500):
        some, others = rng.integers(0, size, 1000), rng.integers(0, size, held_out)
        found = saving_between(
            side(treated[0][some], treated[1][some]), side(whole[0][others], whole[1][others])
        )
        if found is not None:
            said += 1
            hits += found.low <= truth <= found.high
    assert said > 1400
    assert least <= hits / said <= 0.98
