"""What a caller is told that a request cost, over HTTP: under the minimum, just under it, at it and just over it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import pytest

from models.fake_engine import FakeEngine
from serve.config.settings import load_settings
from tests.serve.loopback_service import CONFIG, Running, service
from tests.serve.served import usage_of

# The embedded profile's first model: 100 nano-dollars a prompt token, 400 a completion token, at least 10,000.
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
