"""Prices over HTTP: under the minimum and over it, of an adapter, and of two deployments on one ledger."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import pytest

from models.fake_engine import FakeEngine
from serve.config.settings import load_settings
from tests.serve.loopback_service import CONFIG, Running, service
from tests.serve.served import PROMPT_TOKENS, model_document, serving, usage_of

# The tiny profile's first model: 100 nano-dollars a prompt token, 400 a completion token, at least 10,000.
MODEL = load_settings(CONFIG).models[0]
INPUT = Fraction(MODEL.price.input_usd_per_mtok) / 10**6
OUTPUT = Fraction(MODEL.price.output_usd_per_mtok) / 10**6
MINIMUM = Fraction(MODEL.price.minimum_request_usd)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with service(tmp_path_factory.mktemp("prices"), FakeEngine(text="word " * 40)) as found:
        yield found


def ask(client: httpx.Client, prompt_tokens: int, completion_tokens: int, stream: bool) -> dict[str, Any]:
    """The object with usage and bill. The fake engine counts a token a word, and one for the message."""
    body = {
        "messages": [{"role": "user", "content": " ".join(["w"] * (prompt_tokens - 1))}],
        "max_tokens": completion_tokens,
        "ignore_eos": True,
        "stream": stream,
    }
    reply = client.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    if not stream:
        return dict(reply.json(), request_id=reply.headers["x-request-id"])
    *_, last, done = reply.text.strip().split("\n\n")
    assert done == "data: [DONE]"
    return dict(json.loads(last.removeprefix("data: ")), request_id=reply.headers["x-request-id"])


@pytest.mark.parametrize("stream", [False, True], ids=["JSON", "SSE"])
@pytest.mark.parametrize(
    ("prompt_tokens", "completion_tokens", "side"),
    [(2, 1, "far under"), (3, 24, "just under"), (4, 24, "at"), (5, 24, "just over"), (50, 40, "far over")],
)
def test_the_bill_is_the_greater_of_the_tokens_and_the_minimum(
    running: Running, stream: bool, prompt_tokens: int, completion_tokens: int, side: str
) -> None:
    subtotal = prompt_tokens * INPUT + completion_tokens * OUTPUT
    # One prompt token is the smallest step there is: the neighbours of the minimum are exactly that far away.
    expected_gap = {"just under": -INPUT, "at": Fraction(0), "just over": INPUT}.get(side)
    assert expected_gap is None or subtotal - MINIMUM == expected_gap
    with running.client() as client:
        told = ask(client, prompt_tokens, completion_tokens, stream)
    details = told["usage"]["prompt_tokens_details"]
    assert told["usage"] == usage_of(prompt_tokens, completion_tokens, **details)
    billing = told["service"]["billing"]
    assert billing["minimum_applied"] is (subtotal < MINIMUM)
    assert billing["request_cost_usd"] == float(max(subtotal, MINIMUM))
    assert charged_nano_usd(running, told["request_id"]) == max(subtotal, MINIMUM) * 10**9
    pinned = ("input_price_per_mtok", "output_price_per_mtok", "minimum_request_charge_usd")
    prices = (
        MODEL.price.input_usd_per_mtok,
        MODEL.price.output_usd_per_mtok,
        MODEL.price.minimum_request_usd,
    )
    assert [Decimal(repr(billing[name])) for name in pinned] == list(prices)


def charged_nano_usd(running: Running, request_id: str) -> int:
    path = Path(running.settings.billing.database_url.removeprefix("sqlite:///"))
    with sqlite3.connect(path, timeout=10) as database:
        rows = database.execute(
            "SELECT cost_nano_usd FROM usage_events WHERE request_id = ?", (request_id,)
        ).fetchall()
    ((cost,),) = rows
    return int(cost)


ADAPTER: dict[str, Any] = {
    "id": "loud",
    "name": "Loud",
    "blurb": "An adapter.",
    "adapter": {"of": "alpha", "source": "./loud"},
    "price": {"input_usd_per_mtok": "7000", "output_usd_per_mtok": "9000", "minimum_request_usd": "0"},
}


async def test_an_adapter_is_listed_and_charged_at_its_own_price(tmp_path: Path) -> None:
    async with serving(tmp_path, models=[model_document("alpha"), ADAPTER]) as service:
        served = await service.renewed()
        reply = await served.chat(model="loud").run()
        assert reply.status == 200 and reply.json()["model"] == "loud"
        tokens = reply.json()["usage"]["completion_tokens"]
        (event,) = await served.events()
        assert event.cost_nano_usd == PROMPT_TOKENS * 7_000_000 + tokens * 9_000_000
        usage = (await served.get("/v1/usage?group_by=model").run()).json()
        assert [row["model"] for row in usage["data"]] == ["loud"]
        listed = (await served.get("/openai/v1/models/loud").run()).json()
        assert (listed["root"], listed["parent"]) == ("alpha", "alpha")
        base = (await served.get("/openai/v1/models/alpha").run()).json()
        assert (base["root"], base["parent"]) == ("alpha", None)
        ids = [model["id"] for model in (await served.get("/v1/models").run()).json()]
        assert ids == ["alpha", "loud"]
        await served.assert_nothing_is_left_open()


async def test_a_server_charges_its_own_prices_though_another_published_since(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        served = await service.renewed()
        mine = await served.ledger.current_prices()
        dearer = [replace(price, minimum_nano_usd=10**9) for price in mine.prices]
        theirs = await served.ledger.publish_prices(dearer, now=datetime.now(UTC))
        assert theirs != mine.version

        catalog = json.loads((await served.get("/v1/catalog").run()).body)
        assert catalog["pricing_version"] == mine.version
        reply = json.loads((await served.chat().run()).body)
        (event,) = await served.events("chat")
    assert event.cost_nano_usd < 10**9
    assert reply["service"]["billing"]["request_cost_usd"] == event.cost_nano_usd / 10**9


async def test_a_server_whose_list_was_never_published_takes_no_request(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        served = await service.renewed()
        await served.database.write(
            lambda c: [c.exec_driver_sql(f"DROP TRIGGER prices_no_{verb}") for verb in ("update", "delete")]
        )
        await served.database.write(
            lambda c: c.exec_driver_sql("UPDATE prices SET minimum_nano_usd = minimum_nano_usd + 1")
        )
        reply = await served.chat().run()
    assert reply.status == 503
