"""Cached input: told in every reply, charged at a price of its own where there is one, and shown only there."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from models.errors import EngineFailed
from models.fake_engine import FakeEngine
from tests.serve.served import Served, model_document, serving, usage_of

# 100, 10 and 400 dollars a million tokens: whole nano-dollars each.
INPUT, CACHED, OUTPUT = 100_000, 10_000, 400_000
PRICE = {
    "input_usd_per_mtok": "100",
    "cached_input_usd_per_mtok": "10",
    "output_usd_per_mtok": "400",
    "minimum_request_usd": "0",
}
MODELS = [model_document("alpha", price=PRICE), model_document("beta")]
# The fake counts a token a word and one for the message, and caches blocks of 16.
LONG = [{"role": "user", "content": " ".join(["word"] * 40)}]
TOKENS, BLOCKS = 41, 32


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with serving(tmp_path_factory.mktemp("cached"), models=MODELS) as found:
        yield found


async def costs(served: Served) -> list[int]:
    return sorted(event.cost_nano_usd for event in await served.events())


@pytest.mark.parametrize("stream", [False, True], ids=["JSON", "SSE"])
async def test_what_the_prefix_cache_had_is_told_and_charged_at_its_own_price(
    served: Served, stream: bool
) -> None:
    for cached in (0, BLOCKS):
        client = await served.chat(messages=LONG, stream=stream, max_tokens=1).run()
        reply = client.events()[-2] if stream else client.json()
        due = (TOKENS - cached) * INPUT + cached * CACHED + OUTPUT
        assert reply["usage"] == usage_of(TOKENS, 1, cached_tokens=cached)
        assert reply["service"]["billing"] == {
            "input_price_per_mtok": 100.0,
            "cached_input_price_per_mtok": 10.0,
            "output_price_per_mtok": 400.0,
            "minimum_request_charge_usd": 0.0,
            "minimum_applied": False,
            "request_cost_usd": due / 10**9,
        }
        assert due in await costs(served)
    await served.assert_nothing_is_left_open()


async def test_without_a_price_of_its_own_cached_input_is_told_and_costs_what_input_costs(
    served: Served,
) -> None:
    for cached in (0, BLOCKS):
        reply = (await served.chat(model="beta", messages=LONG, max_tokens=6).run()).json()
        assert reply["usage"]["prompt_tokens_details"] == {"cached_tokens": cached}
        assert "cached_input_price_per_mtok" not in reply["service"]["billing"]
    assert await costs(served) == [TOKENS * INPUT + 6 * OUTPUT] * 2


async def test_a_stream_that_breaks_tells_what_was_cached_of_it(served: Served) -> None:
    served.engine = FakeEngine(fails_with=EngineFailed("it died"), fails_after=3, cached_tokens=40)
    client = await served.chat(messages=LONG, stream=True).run()
    last = client.events()[-1]
    assert last["error"] and last["usage"] == usage_of(TOKENS, 3, cached_tokens=40)
    assert await costs(served) == [1 * INPUT + 40 * CACHED + 3 * OUTPUT]


async def test_an_engine_that_says_more_was_cached_than_there_is_is_not_believed(served: Served) -> None:
    served.engine = FakeEngine(cached_tokens=99)
    reply = (await served.chat(messages=LONG, max_tokens=1).run()).json()
    assert reply["usage"]["prompt_tokens_details"] == {"cached_tokens": TOKENS}
    assert await costs(served) == [TOKENS * CACHED + OUTPUT]


async def test_a_hold_covers_a_prompt_of_which_nothing_is_cached(served: Served) -> None:
    """Else a caller whose limit is used up could go past it with a prompt that has left the cache."""
    key = await served.new_key(spend_limit_nano_usd=TOKENS * INPUT + OUTPUT - 1)
    for _ in range(2):
        assert (await served.chat(key=key, messages=LONG, max_tokens=1).run()).status == 402


async def test_the_lists_of_models_have_the_price_only_of_a_model_that_has_it(served: Served) -> None:
    catalog = (await served.get("/v1/catalog").run()).json()["models"]
    models = (await served.get("/v1/models").run()).json()
    for alpha, beta in (catalog, models):
        assert alpha["cached_input_price_per_mtok"] == 10.0
        assert set(alpha) - set(beta) == {"cached_input_price_per_mtok"}
