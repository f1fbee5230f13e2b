"""Messages without a query, as LiteLLM's Headroom guardrail sends them: what comes back, what it costs, what fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from jsonschema import Draft202012Validator

from billing.caller import ProjectLimits
from compression.pipeline.errors import CompressorOverloaded
from serve.compress.prompt import MOST_BLOCKS
from tests.serve.compress.test_compress import document, issues
from tests.serve.compressing import INPUT_NANO_USD, RETAIN_MAX_S, Compressing
from tests.serve.served import Client, eventually

FLIGHTS = "\n\n".join(
    f"Flight {number} leaves at {number % 24} o'clock, and its price is {number * 7} dollars."
    for number in range(60)
)
HOTELS = FLIGHTS.replace("Flight", "Hotel").replace("leaves", "opens")
QUESTION = "What is the price of flight 17?"
# The guardrail holds back the system message, assistants' messages and the user's last: no conversation is left.
ROWS: list[dict[str, Any]] = [
    {"role": "user", "content": QUESTION, "name": "ann"},
    {"role": "tool", "tool_call_id": "call_1", "name": "search", "content": FLIGHTS, "cache": {"big": 2**70}},
    {"role": "tool", "tool_call_id": "call_2", "content": "none"},
]
ASKED = {"messages": ROWS, "model": "gpt-4o", "config": {"mode": "ccr"}}


@pytest_asyncio.fixture(loop_scope="module")
async def served(module_service: Compressing) -> AsyncIterator[Compressing]:
    yield await module_service.renewed()
    await module_service.assert_nothing_is_left_open()


pytestmark = pytest.mark.asyncio(loop_scope="module")


def ask(served: Compressing, **fields: Any) -> Client:
    return served.post("/v1/compress", {**ASKED, **fields})


async def answer(served: Compressing, **fields: Any) -> Any:
    client = await ask(served, **fields).run()
    assert client.status == 200, client.body
    return client.json()


async def test_the_rows_come_back_with_their_long_texts_shorter(served: Compressing) -> None:
    body = await answer(served)
    user, found, short = body["messages"]
    assert (user, short) == (ROWS[0], ROWS[2])
    assert {**found, "content": ""} == {**ROWS[1], "content": ""} and list(found) == list(ROWS[1])
    assert "Flight 17 leaves at 17 o'clock, and its price is 119 dollars." in found["content"]
    assert len(found["content"]) < 0.6 * len(FLIGHTS)
    assert body["tokens_after"] == body["tokens_before"] - body["tokens_saved"] < body["tokens_before"]
    assert body["compression_ratio"] == body["tokens_after"] / body["tokens_before"] <= 0.5
    assert (body["object"], body["model"], body["status"]) == ("compression.messages", "lexical", "applied")
    assert body["transforms_applied"] == ["lexical"] and body["id"].startswith("cmp_")
    schema = {**await document(served), "$ref": "#/components/schemas/CompressMessagesResponse"}
    Draft202012Validator(schema).validate(body)


async def test_each_part_has_its_receipt_and_what_is_left_whole_its_reason(served: Compressing) -> None:
    body = await answer(served)
    long, short = body["blocks"]
    assert (long["message"], long["part"], long["compressed"], long["reason"]) == (1, None, True, None)
    assert long["receipt"]["original_tokens"] == body["tokens_before"]
    assert (short["message"], short["compressed"], short["reason"]) == (2, False, "below_min_tokens")
    assert short["id"] is short["receipt"] is None


async def test_it_is_charged_once_as_one_compression(served: Compressing) -> None:
    body = await answer(served, messages=[*ROWS, {"role": "tool", "content": HOTELS}])
    (event,) = await served.events()
    assert event["model_id"] == "lexical" and event["outcome"] == "completed"
    assert event["prompt_tokens"] == body["tokens_before"]
    assert event["completion_tokens"] == body["tokens_after"]
    assert event["cost_nano_usd"] == body["tokens_before"] * INPUT_NANO_USD
    receipt = json.loads(event["receipt"])
    assert receipt["original_tokens"] == body["tokens_before"]
    assert receipt["compression_ratio"] == body["compression_ratio"]
    assert FLIGHTS[:20] not in event["receipt"]


async def test_what_was_compressed_before_is_free(served: Compressing) -> None:
    first = await answer(served)
    again = await answer(served, messages=[*ROWS, {"role": "tool", "content": HOTELS}])
    assert again["messages"][:3] == first["messages"]
    assert [block["cached"] for block in again["blocks"]] == [True, False, False]
    once_more = await ask(served).run()
    assert once_more.json()["messages"] == first["messages"]
    assert once_more.reply_headers["x-service-metering-status"] == "persisted"
    events = await served.events()
    assert sorted(event["prompt_tokens"] for event in events) == sorted(
        [first["tokens_before"], again["tokens_before"] - first["tokens_before"]]
    )


async def test_what_another_workspace_had_compressed_is_charged_again(served: Compressing) -> None:
    first = await answer(served)
    await served.new_key()
    again = await answer(served)
    assert not again["blocks"][0]["cached"] and again["blocks"][0]["id"] != first["blocks"][0]["id"]
    assert (await served.events())[0]["prompt_tokens"] == first["tokens_before"]


@pytest.mark.parametrize(
    ("model", "used"),
    [(None, "lexical"), ("alpha", "lexical"), ("anthropic/claude", "lexical"), ("free", "free")],
)
async def test_a_model_that_does_not_compress_stands_for_the_default(
    served: Compressing, model: str | None, used: str
) -> None:
    assert (await answer(served, model=model))["model"] == used


async def test_the_request_s_options_come_before_its_project_s(served: Compressing) -> None:
    await served.set_default(target_ratio=0.2, model="free", min_tokens=1)
    plain = await answer(served)
    assert plain["model"] == "free" and plain["blocks"][0]["receipt"]["target_ratio"] == 0.2
    assert plain["blocks"][1]["reason"] != "below_min_tokens"
    asked = await answer(served, compression={"target_ratio": 0.7, "model": "lexical"})
    assert asked["model"] == "lexical" and asked["blocks"][0]["receipt"]["target_ratio"] == 0.7


@pytest.mark.parametrize("default", [{"keep": 0.9}, {"model": "gone"}, {"target_ratio": 7}])
async def test_a_project_s_default_that_does_not_fit_refuses_nothing(
    served: Compressing, default: dict[str, Any]
) -> None:
    await served.set_default(**default)
    body = await answer(served)
    assert len(body["messages"]) == len(ROWS)
    assert body["status"] == ("failed" if "keep" in default else "applied")


async def test_of_user_messages_every_text_but_the_last_is_compressed(served: Compressing) -> None:
    parts: list[Any] = [
        {"type": "text", "text": FLIGHTS},
        {"type": "text", "text": HOTELS, "compress": False},
        {"type": "image_url", "image_url": {"url": "data:,"}},
        "a string",
        7,
        {"type": "text", "text": QUESTION},
    ]
    rows = [{"role": "user", "content": parts}, {"role": "assistant", "content": FLIGHTS, "tool_calls": 7}]
    body = await answer(served, messages=rows)
    assert [(block["message"], block["part"]) for block in body["blocks"]] == [(0, 0)]
    user, assistant = body["messages"]
    assert user["content"][1:] == parts[1:] and assistant == rows[1]
    assert "its price is 119 dollars" in user["content"][0]["text"]
    marked = await answer(served, messages=rows, compression={"scope": "marked"})
    assert marked["blocks"] == [] and marked["messages"] == rows


async def test_messages_without_anything_long_come_back_as_they_are_and_cost_nothing(
    served: Compressing,
) -> None:
    rows = [{"role": "user", "content": "hi"}, {"role": "tool"}, {"role": "", "content": None}]
    body = await answer(served, messages=rows)
    assert body["messages"] == rows and body["status"] == "skipped" and body["transforms_applied"] == []
    assert (body["tokens_before"], body["tokens_saved"], body["compression_ratio"]) == (0, 0, 1.0)
    assert await served.events() == []


async def test_more_parts_than_the_bound_are_left_whole(served: Compressing) -> None:
    rows = [{"role": "tool", "content": "short"}] * (MOST_BLOCKS + 1)
    body = await answer(served, messages=rows)
    assert len(body["blocks"]) == MOST_BLOCKS and body["messages"] == rows


@pytest.mark.parametrize(
    ("fields", "loc"),
    [
        ({"messages": "x"}, ["messages"]),
        ({"messages": []}, ["messages"]),
        ({"messages": ["x"]}, ["messages"]),
        ({"messages": [{"content": "x"}]}, ["messages"]),
        ({"messages": [{"role": "user", "content": 7}]}, ["messages"]),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "compress": 1}]}]}, None),
        ({"model": 7}, ["model"]),
        ({"compression": {"target_ratio": 0.5, "keep": 0.9}}, ["compression", "keep"]),
        ({"compression": {"target_ratio": 2}}, ["compression", "target_ratio"]),
        ({"compression": {"ratio": 0.5}}, ["compression", "ratio"]),
        ({"scope": "all"}, ["scope"]),
        ({"compression": {"model": "gpt-4o"}}, ["compression", "model"]),
        ({"compression": {"keep": 0.9}}, ["compression", "keep"]),
    ],
)
async def test_what_is_wrong_is_named(
    served: Compressing, fields: dict[str, Any], loc: list[Any] | None
) -> None:
    ((found, _),) = issues(await ask(served, **fields).run())
    assert found == ["body", *(loc or ["messages", 0, "content", 0, "compress"])]
    assert await served.events() == []


async def test_a_number_that_json_does_not_have_is_refused(served: Compressing) -> None:
    raw = json.dumps(ASKED).replace(str(2**70), "1e999").encode()
    assert issues(await served.post("/v1/compress", raw).run()) == [
        (["body", "messages"], "invalid_messages")
    ]


async def test_with_an_input_or_on_another_route_a_query_is_still_needed(served: Compressing) -> None:
    assert issues(await ask(served, input="x").run())[0] == (["body", "query"], "missing")
    assert issues(await served.post("/v1/demo/compress", ASKED).run()) == [(["body", "query"], "missing")]
    item = (await served.batch([ASKED]).run()).json()["results"][0]
    assert item["detail"][0]["loc"] == ["body", "items", 0, "query"]


async def test_it_is_held_and_limited_like_any_compression(served: Compressing) -> None:
    await served.new_key(monthly_limit_nano_usd=1000)
    assert (await ask(served).run()).status == 402
    await served.new_key(limits=ProjectLimits(tokens_per_minute=20))
    assert (await ask(served).run()).status == 429
    await served.new_key(limits=ProjectLimits(requests_per_minute=1))
    first = await ask(served).run()
    assert (first.status, first.reply_headers["x-ratelimit-remaining-requests"]) == (200, "0")
    assert (await ask(served).run()).status == 429


async def test_an_unmetered_project_pays_nothing(served: Compressing) -> None:
    await served.new_key(metered=False)
    client = await ask(served).run()
    assert client.json()["status"] == "applied"
    assert client.reply_headers["x-service-metering-status"] == "not_applicable"


async def test_a_part_whose_compression_fails_is_left_whole_and_not_charged(served: Compressing) -> None:
    served.model.failures[HOTELS] = CompressorOverloaded("busy")
    rows = [*ROWS, {"role": "tool", "content": HOTELS}]
    body = await answer(served, messages=rows)
    assert body["status"] == "failed" and body["messages"][3] == rows[3]
    assert body["messages"][1] != rows[1]
    assert body["blocks"][2]["reason"] == "failed"
    (event,) = await served.events()
    assert event["prompt_tokens"] == body["tokens_before"]


async def test_where_nothing_could_be_compressed_nothing_is_charged(served: Compressing) -> None:
    served.model.failures[FLIGHTS] = CompressorOverloaded("busy")
    body = await answer(served)
    assert (body["status"], body["messages"]) == ("failed", ROWS)
    (event,) = await served.events()
    assert (event["outcome"], event["prompt_tokens"], event["cost_nano_usd"]) == ("failed", 0, 0)


async def test_who_would_rather_be_refused_is(served: Compressing) -> None:
    served.model.failures[FLIGHTS] = CompressorOverloaded("busy")
    client = await ask(served, compression={"on_failure": "refuse"}).run()
    assert (client.status, client.json()["error"]["code"]) == (503, "compressor_unavailable")
    assert await served.events() == []


async def test_what_saves_nothing_is_left_whole_and_charged_all_the_same(served: Compressing) -> None:
    """The work was done: else a ratio of 1 would be work for nothing, for anybody and for ever."""
    body = await answer(served, compression={"target_ratio": 1})
    assert (body["status"], body["messages"]) == ("skipped", ROWS)
    assert body["blocks"][0]["reason"] == "nothing_saved"
    assert (await served.events())[0]["prompt_tokens"] == body["tokens_before"] > 0


async def test_what_was_done_for_a_client_that_left_is_charged_to_whom_it_serves(served: Compressing) -> None:
    gate = served.model.gates[HOTELS] = asyncio.Event()
    before = served.cache.size_bytes
    client = ask(served, messages=[*ROWS, {"role": "tool", "content": HOTELS}])
    asking = client.start()
    await eventually(lambda: served.cache.size_bytes > before and HOTELS in served.model.started)
    client.gone.set()
    await asking
    gate.set()
    assert await served.events() == []
    again = await answer(served)
    assert served.model.started.count(FLIGHTS) == 1 and not again["blocks"][0]["cached"]
    (event,) = await served.events()
    assert (event["outcome"], event["prompt_tokens"]) == ("completed", again["tokens_before"])
    assert (await answer(served))["blocks"][0]["cached"]
    assert len(await served.events()) == 1


async def test_a_client_that_leaves_while_it_is_settled_is_charged_once(served: Compressing) -> None:
    gate = served.model.gates[FLIGHTS] = asyncio.Event()
    client = ask(served)
    asking = client.start()
    await eventually(lambda: FLIGHTS in served.model.started)
    served.database.pauses = "before"
    gate.set()
    await asyncio.wait_for(served.database.paused.wait(), 60)
    client.gone.set()
    await asking
    served.database.resumed.set()
    assert len(await served.events()) == 1
    assert (await answer(served))["blocks"][0]["cached"]
    assert len(await served.events()) == 1


async def test_originals_can_be_kept(served: Compressing) -> None:
    body = await answer(served, compression={"retain_s": 60})
    long, short = body["blocks"]
    assert long["retained_until"] == pytest.approx(served.time[0].timestamp() + 60, abs=30)
    assert short["retained_until"] is None
    found = await served.original(long["id"], "start=0&end=9").run()
    assert found.json()["text"] == FLIGHTS[:9]
    assert (await answer(served))["blocks"][0]["retained_until"] is None
    too_long = issues(await ask(served, compression={"retain_s": RETAIN_MAX_S + 1}).run())
    assert too_long == [(["body", "compression", "retain_s"], "less_than_equal")]
