"""`/anthropic/v1/messages` on a real engine, with Anthropic's package: its usage is what the ledger has."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import anthropic
import pytest

from tests.integration.running import wait_for
from tests.integration.test_money import Payer

if TYPE_CHECKING:
    from anthropic.types import Usage

    from tests.integration.running import Server

MODEL = "pith-mini"
ASK: list[Any] = [{"role": "user", "content": "Where is order 4417?"}]
TOOL: Any = {
    "name": "look_up",
    "description": "Says where an order is.",
    "input_schema": {
        "type": "object",
        "properties": {"new": {"type": "boolean"}},
        "required": ["new"],
        "additionalProperties": False,
    },
}
# The package has no such parameter any more; the interface has.
COLD = {"temperature": 0}
MUST_LOOK: Any = {"type": "tool", "name": "look_up"}


@pytest.fixture
def payer(server: Server) -> Payer:
    name = f"messages-{secrets.token_hex(4)}"
    return Payer(server, name, server.new_key(name))


@pytest.fixture
def client(payer: Payer) -> Iterator[anthropic.Anthropic]:
    base_url = f"{payer.server.url}/anthropic"
    with anthropic.Anthropic(base_url=base_url, api_key=payer.key, max_retries=0) as client:
        yield client


def assert_billed(payer: Payer, *usages: Usage) -> None:
    told = [
        (usage.input_tokens + (usage.cache_read_input_tokens or 0), usage.output_tokens) for usage in usages
    ]
    assert [(event["prompt_tokens"], event["completion_tokens"]) for event in payer.events()] == told


def test_a_message_and_its_count(payer: Payer, client: anthropic.Anthropic) -> None:
    system: Any = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    message = client.messages.create(model=MODEL, max_tokens=8, messages=ASK, system=system, extra_body=COLD)
    assert message.content[0].type == "text" and message.stop_reason in ("max_tokens", "end_turn")
    counted = client.messages.count_tokens(model=MODEL, messages=ASK, system=system)
    usage = message.usage
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)
    assert_billed(payer, usage)


def test_a_stream_is_the_message(payer: Payer, client: anthropic.Anthropic) -> None:
    whole = client.messages.create(model=MODEL, max_tokens=8, messages=ASK, extra_body=COLD)
    with client.messages.stream(model=MODEL, max_tokens=8, messages=ASK, extra_body=COLD) as stream:
        said = "".join(stream.text_stream)
        streamed = stream.get_final_message()
    assert whole.content[0].type == "text" and said == whole.content[0].text
    assert (streamed.stop_reason, streamed.model) == (whole.stop_reason, whole.model)
    assert_billed(payer, whole.usage, streamed.usage)


@pytest.mark.parametrize("choice", [MUST_LOOK, {"type": "any"}], ids=["named", "any"])
def test_a_tool_is_called_and_its_result_is_read(
    payer: Payer, client: anthropic.Anthropic, choice: Any
) -> None:
    asked: Any = {"model": MODEL, "max_tokens": 300, "tools": [TOOL], "extra_body": COLD}
    called = client.messages.create(**asked, messages=ASK, tool_choice=choice)
    (call,) = called.content
    assert called.stop_reason == "tool_use" and call.type == "tool_use" and call.name == "look_up"
    assert isinstance(call.input, dict) and isinstance(call.input["new"], bool)
    with client.messages.stream(**asked, messages=ASK, tool_choice=choice) as stream:
        (streamed,) = stream.get_final_message().content
    assert streamed.type == "tool_use" and streamed.input == call.input
    result = {
        "type": "tool_result",
        "tool_use_id": call.id,
        "content": [{"type": "text", "text": "It is sent."}],
    }
    turns: list[Any] = [
        *ASK,
        {"role": "assistant", "content": [block.model_dump() for block in called.content]},
        {"role": "user", "content": [result, {"type": "text", "text": "And?"}]},
    ]
    answered = client.messages.create(**{**asked, "max_tokens": 8}, messages=turns)
    assert answered.usage.output_tokens > 0
    assert len(payer.events()) == 3


def test_a_stop_sequence_is_named(client: anthropic.Anthropic) -> None:
    whole = client.messages.create(model=MODEL, max_tokens=40, messages=ASK, extra_body=COLD)
    assert whole.content[0].type == "text"
    stop = whole.content[0].text.split()[2]
    cut = client.messages.create(
        model=MODEL, max_tokens=40, messages=ASK, extra_body=COLD, stop_sequences=[stop]
    )
    assert (cut.stop_reason, cut.stop_sequence) == ("stop_sequence", stop)


def test_what_claude_code_sends_is_taken(payer: Payer, client: anthropic.Anthropic) -> None:
    body: Any = {
        "model": MODEL,
        "max_tokens": 32_000,
        "system": [
            {"type": "text", "text": f"x-anthropic-billing-header: {secrets.token_hex(4)}"},
            {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
        ],
        "messages": [*ASK, {"role": "system", "content": [{"type": "text", "text": "# Environment"}]}],
        "tools": [TOOL, {"name": "Placeholder", "input_schema": {"type": "object"}, "defer_loading": True}],
        "metadata": {"user_id": "u"},
        "thinking": {"type": "adaptive", "display": "omitted"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "tool_choice": {"type": "none"},
        "stop_sequences": [" "],
        "stream": True,
    }
    headers = {"anthropic-beta": "a-2025-01-01,b-2025-01-01", "anthropic-version": "2023-06-01"}
    with payer.server.client(key=payer.key) as http:
        reply = http.post("/anthropic/v1/messages?beta=true", json=body, headers=headers)
    assert reply.status_code == 200, reply.text
    events = [json.loads(event.partition("data: ")[2]) for event in reply.text.split("\n\n") if event]
    assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
    assert events[-2]["service"]["metering"]["status"] == "persisted"


def test_a_client_that_leaves_pays_for_what_was_made(payer: Payer, client: anthropic.Anthropic) -> None:
    with client.messages.stream(model=MODEL, max_tokens=2000, messages=ASK) as stream:
        next(iter(stream.text_stream))
    wait_for(payer.events, what="the settlement")
    (event,) = payer.events()
    assert event["outcome"] in ("disconnected", "completed") and event["completion_tokens"] > 0
    wait_for(lambda: payer.held() == 0, what="nothing is held")


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"model": "claude-opus-4-8"}, anthropic.NotFoundError),
        ({"messages": [{"role": "user", "content": "a " * 40_000}]}, anthropic.BadRequestError),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, anthropic.BadRequestError),
        ({"extra_body": {"temperature": 3}}, anthropic.BadRequestError),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_refused_is_free_and_an_error_of_anthropics(
    payer: Payer, client: anthropic.Anthropic, fields: Any, error: type[Exception], stream: bool
) -> None:
    asked = {"model": MODEL, "max_tokens": 5, "messages": ASK, **fields}
    with pytest.raises(error) as refused:
        client.messages.create(**asked, stream=stream)
    body: Any = refused.value.body  # type: ignore[attr-defined]
    assert body["type"] == "error" and body["error"]["message"] and body["request_id"]
    if error is anthropic.BadRequestError and "messages" in fields:
        assert body["error"]["message"].startswith("prompt is too long")
    assert payer.events() == []


def test_a_wrong_key_and_a_bearer_key(payer: Payer) -> None:
    base_url = f"{payer.server.url}/anthropic"
    with (
        anthropic.Anthropic(base_url=base_url, api_key="nonsense", max_retries=0) as wrong,
        pytest.raises(anthropic.AuthenticationError),
    ):
        wrong.messages.create(model=MODEL, max_tokens=1, messages=ASK)
    with anthropic.Anthropic(base_url=base_url, auth_token=payer.key, api_key=None) as bearer:
        assert bearer.messages.create(model=MODEL, max_tokens=1, messages=ASK).usage.output_tokens == 1
        assert bearer.models.list().data[0].id == MODEL
        assert bearer.models.retrieve(MODEL).max_input_tokens
