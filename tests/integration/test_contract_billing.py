"""The bill of a completion against section 2 (Billing, Metering, Usage): exact, on the real server, in both forms."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from typing import TYPE_CHECKING, Any

import httpx
import pytest

if TYPE_CHECKING:
    from tests.integration.running import Server

COMPLETIONS = "/v1/chat/completions"
MILLION = 10**6
NANO_USD = Decimal("1e-9")


@dataclass(frozen=True)
class Bill:
    """What one completion said of itself, with every number as it was written."""

    usage: dict[str, int]
    billing: dict[str, Any]
    metering: dict[str, Any]
    header: str


def completion(http: httpx.Client, *, content: str, tokens: int, stream: bool) -> Bill:
    """A completion of exactly `tokens` tokens."""
    message = {"role": "user", "content": content}
    body = {"messages": [message], "max_tokens": tokens, "ignore_eos": True, "stream": stream}
    reply = http.post(COMPLETIONS, json=body)
    assert reply.status_code == 200, reply.text
    text = reply.text.split("data: ")[-2] if stream else reply.text
    fields = json.loads(text, parse_float=Decimal)
    service = fields["service"]
    header = reply.headers["x-service-metering-status"]
    return Bill(fields["usage"], service["billing"], service["metering"], header)


@pytest.fixture(scope="module")
def price(server: Server) -> dict[str, Any]:
    """The default model's entry in the catalog."""
    reply = httpx.get(f"{server.url}/v1/catalog")
    return dict(reply.json(parse_float=Decimal)["models"][0])


def subtotal(usage: dict[str, int], price: dict[str, Any]) -> Decimal:
    spent = usage["prompt_tokens"] * price["input_price_per_mtok"]
    return (spent + usage["completion_tokens"] * price["output_price_per_mtok"]) / MILLION


@dataclass(frozen=True)
class BreakEven:
    """A prompt, and how many completion tokens bring its subtotal to the minimum exactly."""

    content: str
    completion_tokens: int


@pytest.fixture(scope="module")
def break_even(server: Server, price: dict[str, Any]) -> BreakEven:
    content = "Hello"
    with server.client() as client:
        for _ in range(40):
            used = completion(client, content=content, tokens=1, stream=False).usage["prompt_tokens"]
            left = price["minimum_request_charge_usd"] * MILLION - used * price["input_price_per_mtok"]
            tokens = left / price["output_price_per_mtok"]
            if tokens == int(tokens) and tokens > 1:
                return BreakEven(content, int(tokens))
            content += " a"
    raise AssertionError("no prompt brings the subtotal to the minimum exactly; choose other prices")


@pytest.mark.parametrize("stream", [False, True], ids=["JSON", "SSE"])
@pytest.mark.parametrize(
    ("beside", "applied"),
    [
        pytest.param(-1, True, id="2 Billing: minimum_applied is true under the minimum"),
        pytest.param(0, False, id="2 Billing: minimum_applied is false where the tokens cost as much"),
        pytest.param(1, False, id="2 Billing: minimum_applied is false over the minimum"),
    ],
)
def test_the_minimum_is_applied_where_it_determines_the_cost(
    beside: int, applied: bool, stream: bool, break_even: BreakEven, price: dict[str, Any], http: httpx.Client
) -> None:
    tokens = break_even.completion_tokens + beside
    bill = completion(http, content=break_even.content, tokens=tokens, stream=stream)
    assert bill.usage["completion_tokens"] == tokens
    assert bill.billing["minimum_applied"] is applied
    minimum = price["minimum_request_charge_usd"]
    assert bill.billing["request_cost_usd"] == max(subtotal(bill.usage, price), minimum)


@pytest.mark.parametrize("stream", [False, True], ids=["JSON", "SSE"])
@pytest.mark.parametrize("tokens", [1, 7, 33, 150])
def test_the_cost_is_the_greater_of_subtotal_and_minimum(
    tokens: int, stream: bool, price: dict[str, Any], http: httpx.Client
) -> None:
    """2 Billing: request_cost_usd; 2 Usage: the total is the sum."""
    bill = completion(http, content="Tell me about the river. " * tokens, tokens=tokens, stream=stream)
    assert bill.usage["completion_tokens"] == tokens
    assert bill.usage["total_tokens"] == bill.usage["prompt_tokens"] + tokens
    rounded = subtotal(bill.usage, price).quantize(NANO_USD, ROUND_HALF_EVEN)
    minimum = price["minimum_request_charge_usd"]
    assert bill.billing["request_cost_usd"] == max(rounded, minimum)
    assert bill.billing["minimum_applied"] is (subtotal(bill.usage, price) < minimum)


@pytest.mark.parametrize("stream", [False, True], ids=["JSON", "SSE"])
@pytest.mark.parametrize(
    "field", ["input_price_per_mtok", "output_price_per_mtok", "minimum_request_charge_usd"]
)
def test_a_bill_names_the_prices_of_the_catalog(
    field: str, stream: bool, price: dict[str, Any], http: httpx.Client
) -> None:
    """2 Billing: prices of the selected model."""
    bill = completion(http, content="Hello", tokens=1, stream=stream)
    assert bill.billing[field] == price[field]


@pytest.mark.parametrize("stream", [False, True], ids=["JSON", "SSE"])
def test_metered_usage_is_persisted(stream: bool, http: httpx.Client) -> None:
    """2 Metering: persisted, status; 4: X-Service-Metering-Status; 6: the same header on a stream."""
    bill = completion(http, content="Hello", tokens=1, stream=stream)
    assert bill.metering == {"persisted": True, "status": "persisted"}
    assert bill.header == "persisted"


def test_what_a_completion_cost_is_what_the_workspace_paid(server: Server) -> None:
    """2 Metering: persisted says that the usage was recorded."""
    name = f"bill-{secrets.token_hex(4)}"
    with server.client(key=server.new_key(name)) as client:
        bills = [
            completion(client, content="Hello " * 40, tokens=60, stream=stream) for stream in (False, True)
        ]
    paid = {row["name"]: row["posted_usd"] for row in server.pith("workspace", "list")}
    assert Decimal(paid[name]) == sum(bill.billing["request_cost_usd"] for bill in bills)
