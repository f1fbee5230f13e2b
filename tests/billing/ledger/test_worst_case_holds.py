"""`serve.money.held_request` on both databases: no caller with money left is refused, and none without it is served."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from billing.caller import Caller
from billing.errors import QuotaExceeded
from billing.price import ModelPrice
from billing.usage import Hold
from models.engine import EngineRequest
from models.fake_engine import FakeEngine
from serve.money.admission import hold_worst_case
from serve.money.held_request import HoldTerms, MostTokens, TokenTerms

if TYPE_CHECKING:
    from tests.billing.conftest import Books

PRICE = ModelPrice("model-a", 1_000_000, 2_000_000, 0)
# Few tokens of many bytes: each word is one to the fake engine.
TEXT = " ".join(["incomprehensibilities"] * 50)
REQUEST = EngineRequest("id", "model-a", ({"role": "user", "content": TEXT},), 10, False, "salt")
EXACT_TOKENS = 51
EXACT_COST = EXACT_TOKENS * 1000 + 10 * 2000


async def hold(books: Books, caller: Caller, engine: FakeEngine) -> Hold:
    async def count() -> MostTokens:
        return MostTokens(await engine.count_tokens(REQUEST), 10)

    bound = engine.prompt_bound()
    assert bound is not None
    most = bound.of(REQUEST)
    assert most is not None
    tokens = TokenTerms("model-a", MostTokens(most, 10), MostTokens(1, 10), count)
    terms = HoldTerms(caller, PRICE, books.pricing_version, "request", tokens)
    held, _ = await hold_worst_case(books.ledger, terms, clock=lambda: books.now)
    return held


async def test_far_from_the_limit_nothing_is_counted(books: Books) -> None:
    engine = FakeEngine()
    held = await hold(books, await books.new_caller(spend_limit_nano_usd=10**9), engine)
    assert held.amount_nano_usd > EXACT_COST and engine.counted == []


@pytest.mark.parametrize("limit", ["spend_limit_nano_usd", "monthly_limit_nano_usd"])
async def test_the_last_of_the_money_can_be_spent_and_not_a_nano_dollar_more(
    books: Books, limit: str
) -> None:
    engine = FakeEngine()
    rich = await books.new_caller(**{limit: EXACT_COST})
    assert (await hold(books, rich, engine)).amount_nano_usd == EXACT_COST
    assert await books.money(rich) == (0, EXACT_COST)
    poor = await books.new_caller(**{limit: EXACT_COST - 1})
    with pytest.raises(QuotaExceeded) as caught:
        await hold(books, poor, engine)
    assert caught.value.wanted_nano_usd == EXACT_COST
    assert await books.money(poor) == (0, 0)


async def test_who_could_not_pay_for_one_token_starts_no_count(books: Books) -> None:
    engine = FakeEngine()
    with pytest.raises(QuotaExceeded):
        await hold(books, await books.new_caller(spend_limit_nano_usd=1000 + 10 * 2000 - 1), engine)
    assert engine.counted == []


async def test_exact_holds_at_once_spend_the_limit_and_no_more(books: Books) -> None:
    engine = FakeEngine()
    caller = await books.new_caller(spend_limit_nano_usd=7 * EXACT_COST)
    results = await asyncio.gather(*(hold(books, caller, engine) for _ in range(40)), return_exceptions=True)
    held = [result for result in results if isinstance(result, Hold)]
    assert all(isinstance(result, Hold | QuotaExceeded) for result in results)
    posted, reserved = await books.money(caller)
    assert posted + reserved <= 7 * EXACT_COST
    for each in held:
        await books.settle(each, EXACT_COST)
    # What the wide holds of the others had kept from being used can be used now.
    for _ in range(7 - len(held)):
        await books.settle(await hold(books, caller, engine), EXACT_COST)
    assert await books.money(caller) == (7 * EXACT_COST, 0)


async def test_a_project_that_is_not_metered_is_never_counted(books: Books) -> None:
    engine = FakeEngine()
    caller = replace(await books.new_caller(spend_limit_nano_usd=0), metered=False)
    assert (await hold(books, caller, engine)).kind == "not_applicable"
    assert engine.counted == []
