"""A project with a default for compression, and clients that know nothing of it, on the real server."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.integration.running import Server, wait_for

MODEL = "pith-mini"
CONTEXT, BLOCK_TOKENS = 4096, 32
DEFAULT = '{"target_ratio": 0.3}'
HEADER = "x-service-compression"
# A server reads a key again after so many seconds.
KNOWN_S = 5
CALL: dict[str, Any] = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "price_list", "arguments": '{"about": "item 17"}'},
}


def items(count: int) -> str:
    return "\n\n".join(
        f"Item {i} has a price of {i * 7} dollars and colour number {i % 5}." for i in range(count)
    )


def agent(count: int = 60) -> list[Any]:
    return [
        {"role": "system", "content": "Answer from what the tools say."},
        {"role": "user", "content": "What is the price of item 17?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": items(count)},
    ]


@pytest.fixture(scope="module")
def project(server: Server) -> str:
    return f"default-{secrets.token_hex(4)}"


@pytest.fixture(scope="module")
def key(server: Server, project: str) -> str:
    return server.new_key(project, project=("--compression", DEFAULT))


@pytest.fixture
def client(server: Server, key: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0, timeout=60) as client:
        yield client


def said(reply: Any) -> dict[str, Any]:
    """`service.compression`, which no OpenAI type declares."""
    found: dict[str, Any] = reply.model_extra["service"]["compression"]
    return found


def test_an_unmodified_client_sends_less_and_reads_what_that_saved(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(
        model=MODEL, messages=agent(), max_tokens=5, extra_body={"compression": None}
    )
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=agent(), max_tokens=5)
    reply = raw.parse()
    assert raw.headers[HEADER] == "applied"
    assert whole.usage is not None and reply.usage is not None
    assert reply.usage.prompt_tokens < 0.5 * whole.usage.prompt_tokens
    told = said(reply)
    assert (told["original_tokens"], told["sent_tokens"]) == (
        whole.usage.prompt_tokens,
        reply.usage.prompt_tokens,
    )
    costs = [each.model_extra["service"]["billing"]["request_cost_usd"] for each in (whole, reply)]
    assert told["saved_usd"] == pytest.approx(costs[0] - costs[1]) and told["cost_usd"] == 0
    (block,) = told["blocks"]
    assert (block["message"], block["part"], block["compressed"]) == (3, None, True)
    assert block["receipt"]["compression_ratio"] <= 0.3
    assert "compression" not in whole.model_extra["service"]


def test_a_stream_says_the_same_in_its_last_chunk(client: openai.OpenAI) -> None:
    plain = client.chat.completions.create(model=MODEL, messages=agent(), max_tokens=5)
    with client.chat.completions.create(model=MODEL, messages=agent(), max_tokens=5, stream=True) as stream:
        *_, last = stream
    assert last.usage is not None and plain.usage is not None
    assert last.usage.prompt_tokens == plain.usage.prompt_tokens
    names = ("status", "original_tokens", "sent_tokens", "tokens_saved")
    assert [said(last)[name] for name in names] == [said(plain)[name] for name in names]
    assert [block["id"] for block in said(last)["blocks"]] == [block["id"] for block in said(plain)["blocks"]]


def test_a_later_turn_sends_the_earlier_ones_as_before(client: openai.OpenAI) -> None:
    first = client.chat.completions.create(model=MODEL, messages=agent(), max_tokens=20)
    answer = str(first.choices[0].message.content)
    turns = [*agent(), {"role": "assistant", "content": answer}, {"role": "user", "content": "And item 18?"}]
    second = client.chat.completions.create(model=MODEL, messages=turns, max_tokens=5)
    blocks = [
        [(block["id"], block["receipt"]) for block in said(reply)["blocks"]] for reply in (first, second)
    ]
    assert blocks[0] == blocks[1]
    assert first.usage is not None and second.usage is not None
    details = second.usage.prompt_tokens_details
    # vLLM's prefix cache keeps whole blocks.
    assert details is not None and details.cached_tokens is not None
    assert details.cached_tokens > first.usage.prompt_tokens - BLOCK_TOKENS


def test_what_fits_only_because_it_is_compressed_is_answered(client: openai.OpenAI) -> None:
    with pytest.raises(openai.UnprocessableEntityError, match="maximum context length"):
        client.chat.completions.create(
            model=MODEL, messages=agent(400), max_tokens=5, extra_body={"compression": False}
        )
    told = said(client.chat.completions.create(model=MODEL, messages=agent(400), max_tokens=5))
    assert told["original_tokens"] > 2 * CONTEXT and told["sent_tokens"] < CONTEXT
    # The embedded compression model counts with the chat model's tokenizer.
    (block,) = told["blocks"]
    assert told["tokens_saved"] == block["receipt"]["tokens_saved"]


def test_nothing_to_compress_changes_nothing(client: openai.OpenAI) -> None:
    ask: list[Any] = [{"role": "user", "content": "Tell me about the river."}]
    reply = client.chat.completions.create(model=MODEL, messages=ask, max_tokens=5)
    told = said(reply)
    assert (told["status"], told["tokens_saved"], told["blocks"]) == ("skipped", 0, [])
    assert reply.usage is not None and told["original_tokens"] == reply.usage.prompt_tokens


def test_a_sampled_reply_is_scored_again_by_the_model_that_gave_it(server: Server) -> None:
    checked = json.dumps({"target_ratio": 0.3, "verify": 1})
    key = server.new_key(f"checked-{secrets.token_hex(4)}", project=("--compression", checked))
    with server.client(key=key) as http:

        def checked_chats() -> int:
            return sum(row["checked_chats"] for row in preservation(http))

        def one_is_checked(stream: bool) -> bool:
            before = checked_chats()
            body = {"messages": agent(), "max_tokens": 40, "stream": stream, "temperature": 0}
            reply = http.post("/v1/chat/completions", json=body)
            assert reply.status_code == 200, reply.text
            if reply.headers[HEADER] != "applied":
                return False
            wait_for(lambda: checked_chats() > before, what="a check", timeout_s=120, every_s=0.5)
            return True

        # On a busy machine a prompt may not be compressed in time, and is sent whole: then there is nothing to check.
        for stream in (False, True):
            assert any(one_is_checked(stream) for _ in range(6))
        (row,) = preservation(http)
    assert (row["model"], row["kind"]) == (MODEL, "tool_text")
    # Other tokens are the likeliest in some places without what was left out, and it is nobody's bill.
    assert 0 < row["agreement"] <= 1 and -1 <= row["nats_per_token"] <= 4
    assert row["nats_low"] <= row["nats_per_token"] <= row["nats_high"]


def preservation(http: httpx.Client) -> list[dict[str, Any]]:
    return list(http.get("/v1/usage?group_by=model").json()["preservation"])


def test_a_running_server_follows_what_an_operator_sets(server: Server, project: str, key: str) -> None:
    with server.client(key=key) as http:

        def size() -> tuple[str, float | None, float | None]:
            reply = ask(http)
            blocks = reply.json()["service"].get("compression", {}).get("blocks", [])
            receipt = blocks[0]["receipt"] if blocks and blocks[0]["receipt"] else {}
            return reply.headers[HEADER], receipt.get("target_ratio"), receipt.get("keep")

        assert size() == ("applied", 0.3, None)
        for setting, becomes in (
            ("off", ("off", None, None)),
            (json.dumps({"target_ratio": 0.5}), ("applied", 0.5, None)),
            (DEFAULT, ("applied", 0.3, None)),
        ):
            server.pith("project", "set", f"{project}/main", "--compression", setting)
            wait_for(lambda expected=becomes: size() == expected, timeout_s=KNOWN_S + 2, what=setting)


def ask(http: httpx.Client) -> httpx.Response:
    reply = http.post("/v1/chat/completions", json={"messages": agent(), "max_tokens": 5})
    assert reply.status_code == 200, reply.text
    return reply
