"""Near its limit, a workspace is refused for what a prompt costs and not for its bytes: vLLM counts it beforehand."""

from __future__ import annotations

import secrets
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import httpx
import pytest

if TYPE_CHECKING:
    from tests.integration.running import Server

COMPLETIONS = "/v1/chat/completions"
MILLION = 10**6
NANO_USD = Decimal("1e-9")
COMPLETION_TOKENS = 60
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def body(**fields: Any) -> dict[str, Any]:
    """A long prompt of frequent words, which are a token each; some turns, so that the template has its part."""
    text = "the river is wide and the river is deep. " * 20
    turns = [
        ("system", "Answer briefly."),
        ("user", text),
        ("assistant", "Yes."),
        ("user", "Tell me about it."),
    ]
    messages = [{"role": role, "content": content} for role, content in turns]
    return {"messages": messages, "max_tokens": COMPLETION_TOKENS, "ignore_eos": True, **fields}


@pytest.fixture(scope="module")
def cost(server: Server) -> Decimal:
    """US dollars of that prompt, as the engine counted it when it generated."""
    price = httpx.get(f"{server.url}/v1/catalog").json(parse_float=Decimal)["models"][0]
    with server.client() as http:
        usage = http.post(COMPLETIONS, json=body()).json()["usage"]
    assert usage["prompt_tokens"] < len(body()["messages"][1]["content"]) / 2, (
        "a token must be several bytes here"
    )
    assert usage["completion_tokens"] == COMPLETION_TOKENS
    spent = usage["prompt_tokens"] * price["input_price_per_mtok"]
    spent += usage["completion_tokens"] * price["output_price_per_mtok"]
    exact: Decimal = spent / MILLION
    assert exact > price["minimum_request_charge_usd"]
    return exact


@pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])
def test_the_last_of_the_money_pays_for_a_long_prompt_of_few_tokens(
    server: Server, cost: Decimal, stream: bool
) -> None:
    name = f"near-{secrets.token_hex(4)}"
    with server.client(key=server.new_key(name, limit_usd=f"{cost:f}")) as http:
        reply = http.post(COMPLETIONS, json=body(stream=stream))
        assert reply.status_code == 200, reply.text
        assert http.post(COMPLETIONS, json=body(stream=stream)).status_code == 402
    (workspace,) = [each for each in server.pith("workspace", "list") if each["name"] == name]
    assert (Decimal(workspace["posted_usd"]), Decimal(workspace["held_usd"])) == (cost, 0)


def test_a_nano_dollar_less_does_not(server: Server, cost: Decimal) -> None:
    key = server.new_key(f"short-{secrets.token_hex(4)}", limit_usd=f"{cost - NANO_USD:f}")
    with server.client(key=key) as http:
        reply = http.post(COMPLETIONS, json=body())
    assert (reply.status_code, reply.json()["error"]["code"]) == (402, "quota_exceeded")
    assert f"up to ${cost.normalize():f}" in reply.json()["detail"]


def test_what_the_engine_refuses_is_refused_by_the_count_as_well(server: Server, cost: Decimal) -> None:
    key = server.new_key(f"bad-{secrets.token_hex(4)}", limit_usd=f"{cost:f}")
    with server.client(key=key) as http:
        reply = http.post(COMPLETIONS, json=body(chat_template_kwargs={"nonsense": 1}, tools=[TOOL]))
    assert 400 <= reply.status_code < 500, reply.text
