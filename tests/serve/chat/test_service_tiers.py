"""Service tiers of chats: what each costs, what is held for it, and who may ask for it in which dialect."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import text

from billing.caller import NO_LIMITS
from serve.config.settings import Settings
from tests.serve.served import HI, Client, Served, serving, settings_document, token_cost

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATHS = {
    "contract": ("/v1/chat/completions", {"messages": HI, "max_tokens": 6}),
    "openai": ("/openai/v1/chat/completions", {"messages": HI, "max_tokens": 6}),
    "completions": ("/openai/v1/completions", {"model": "alpha", "prompt": "hi", "max_tokens": 6}),
    "responses": ("/openai/v1/responses", {"model": "alpha", "input": "hi", "max_output_tokens": 6}),
}
FACTORS = {"flex": 0.5, "priority": 2}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    billing = {
        "database_url": f"sqlite:///{folder / 'pith.db'}",
        "spool_path": str(folder / "spool.db"),
        "service_tiers": FACTORS,
    }
    async with serving(folder, billing=billing) as service:
        yield service


async def ask(served: Served, dialect: str, **fields: Any) -> Client:
    path, body = PATHS[dialect]
    return await served.post(path, {**body, **fields}).run()


async def charged(served: Served) -> list[tuple[str, int, int]]:
    query = text(
        "SELECT e.route, e.price_ppm, e.cost_nano_usd FROM usage_events e "
        "JOIN workspaces w ON w.id = e.workspace_id WHERE w.name = :name"
    )
    rows = await served.database.read(lambda c: c.execute(query, {"name": served.workspace}).all())
    return [(row.route, row.price_ppm, row.cost_nano_usd) for row in rows]


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize("tier", sorted(FACTORS))
async def test_a_tier_is_charged_its_part_of_the_price_and_named_in_the_reply(
    served: Served, tier: str, stream: bool
) -> None:
    client = await served.chat(service_tier=tier, stream=stream, max_tokens=600).run()
    assert client.status == 200
    (event,) = await served.events()
    tokens = token_cost(event.completion_tokens)
    ((route, ppm, cost),) = await charged(served)
    assert (route, ppm) == (f"{tier}:chat", int(FACTORS[tier] * 10**6))
    assert cost == int(tokens * FACTORS[tier])
    assert f'"service_tier":"{tier}"'.encode() in client.body
    assert [request.tier for request in served.engine.requests] == [tier]
    await served.assert_nothing_is_left_open()


async def test_the_hold_is_of_the_tiers_price(served: Served) -> None:
    most = token_cost(600)
    served.key = await served.new_key(served.workspace + "-2", limits=NO_LIMITS, monthly_limit_nano_usd=most)
    assert (await served.chat(service_tier="priority", max_tokens=600).run()).status == 402
    assert (await served.chat(service_tier="default", max_tokens=600).run()).status == 200


@pytest.mark.parametrize("dialect", sorted(PATHS))
async def test_every_dialect_of_openais_takes_it(served: Served, dialect: str) -> None:
    for asked, given in (("flex", "flex"), ("auto", None), ("default", None), (None, None)):
        client = await ask(served, dialect, service_tier=asked)
        assert client.status == 200, client.body
        expected = given or ("default" if dialect == "responses" else None)
        assert client.json().get("service_tier") == expected
    assert [route.split(":")[0] for route, _, _ in await charged(served)].count("flex") == 1


async def test_what_is_no_tier_is_refused_by_name(served: Served) -> None:
    for wrong, status in (("scale", 400), (5, 422), ([], 422)):
        client = await served.chat(service_tier=wrong).run()
        assert client.status == status
        assert "service_tier" in client.body.decode()
    client = await served.chat(service_tier="scale").run()
    assert "offered are auto, default, flex, priority" in client.json()["detail"]
    assert await charged(served) == []


@pytest.mark.parametrize("factors", [{}, {"priority": 1.5}])
async def test_a_tier_is_offered_where_it_has_a_price(factors: dict[str, float], tmp_path: Any) -> None:
    document = settings_document(tmp_path)
    document["billing"]["service_tiers"] = factors
    tiers_ppm = Settings.model_validate(document).billing.tiers_ppm
    assert tiers_ppm == {name: int(factor * 10**6) for name, factor in factors.items()}


@pytest.mark.parametrize("factor", [-0.5, 4.5, "dear", 0.0000001])
async def test_a_price_of_a_tier_that_is_none_is_refused(factor: Any, tmp_path: Any) -> None:
    document = settings_document(tmp_path)
    document["billing"]["service_tiers"] = {"flex": factor}
    with pytest.raises(ValueError, match="service_tiers"):
        Settings.model_validate(document)
