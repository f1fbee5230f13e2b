"""Chat messages in place of an input: a conversation goes in and a conversation comes out, on all three routes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from billing.caller import ProjectLimits
from compression.pipeline.errors import RefusedRequest
from compression.source.token_counter import FakeCounter
from tests.serve.compress.test_compress import BOTH, document, issues
from tests.serve.compressing import (
    CONTEXT,
    DEMO_MAX_CHARS,
    LONGEST_INPUT_BYTES,
    QUERY,
    Compressing,
    compressing,
)

CALL = {"id": "call_7", "type": "function", "function": {"name": "look_up", "arguments": '{"pump": "P-9"}'}}
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "You help with pumps.", "cache": {"ttl": 300, "big": 2**70}},
    {"role": "user", "content": [{"type": "text", "text": f'{QUERY} It is "P-9" \U0001f600.'}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL], "x-trace": None},
    {
        "role": "tool",
        "tool_call_id": "call_7",
        "content": "The pump has a warranty that ends.\nIts colour is a matter of taste and of the season of the year. "
        'It is called "Grün".\nThe warranty ends after two years, on 3 May.\nSpare parts are listed below.',
    },
    {"role": "assistant", "content": "Its colour is a matter of taste and of the season."},
    {"role": "user", "content": QUERY},
]
CANONICAL = json.dumps(MESSAGES, ensure_ascii=False, separators=(",", ":"))


pytestmark = pytest.mark.asyncio(loop_scope="module")


def asked(ratio: float = 0.8, **fields: Any) -> dict[str, Any]:
    return {"query": QUERY, "messages": MESSAGES, "compression": {"target_ratio": ratio}, **fields}


@BOTH
async def test_messages_come_back_as_messages(served: Compressing, path: str) -> None:
    client = await served.post(path, asked()).run()
    answer = client.json()
    assert list(answer) == ["id", "object", "created", "model", "output", "messages", "receipt"]
    assert json.loads(answer["output"]) == answer["messages"] != MESSAGES
    for message in answer["messages"]:
        assert any(stripped(message) == stripped(original) for original in MESSAGES)
    calls = [call["id"] for message in answer["messages"] for call in message.get("tool_calls", ())]
    assert calls == [message["tool_call_id"] for message in answer["messages"] if message["role"] == "tool"]
    assert "The warranty ends after two years" in answer["output"]
    receipt = answer["receipt"]
    assert receipt["original_tokens"] == FakeCounter().count(CANONICAL)
    assert receipt["output_tokens"] == FakeCounter().count(answer["output"])
    assert receipt["compression_ratio"] <= 0.8
    schema = {**await document(served), "$ref": "#/components/schemas/CompressResponse"}
    Draft202012Validator(schema).validate(answer)


def stripped(message: dict[str, Any]) -> dict[str, Any]:
    """All of it but its text."""
    return {name: value for name, value in message.items() if name != "content"}


@BOTH
async def test_a_ratio_of_one_gives_them_back_member_by_member(served: Compressing, path: str) -> None:
    answer = (await served.post(path, asked(1)).run()).json()
    assert answer["messages"] == MESSAGES and answer["output"] == CANONICAL
    assert [list(message) for message in answer["messages"]] == [list(message) for message in MESSAGES]


@BOTH
async def test_spans_are_of_the_decoded_texts_and_marks_stand_in_them(served: Compressing, path: str) -> None:
    body = asked(0.8, include=["spans"])
    body["compression"]["mark_gaps"] = True
    answer = (await served.post(path, body).run()).json()
    schema = {**await document(served), "$ref": "#/components/schemas/CompressResponse"}
    Draft202012Validator(schema).validate(answer)
    kept: dict[tuple[int, int | None], list[str]] = {}
    for span in answer["kept"]:
        content = MESSAGES[span["message"]]["content"]
        text = content if span["part"] is None else content[span["part"]]["text"]
        assert span["inner"] is None
        kept.setdefault((span["message"], span["part"]), []).append(text[span["start"] : span["end"]])
    (result,) = [message["content"] for message in answer["messages"] if message["role"] == "tool"]
    assert "[…]" in result and len(kept[3, None]) > 1
    for piece in kept[3, None]:
        assert piece in result
    unmarked = "".join(piece for piece in result.split("[…]"))
    assert "".join(unmarked.split()) == "".join("".join(kept[3, None]).split())
    assert answer["receipt"]["compression_ratio"] <= 0.8


@BOTH
@pytest.mark.parametrize(
    ("fields", "loc", "kind"),
    [
        ({"input": CONTEXT}, ["body", "input"], "two_contexts"),
        ({"messages": None}, ["body", "input"], "missing"),
        ({"messages": []}, ["body", "messages"], "invalid_messages"),
        ({"messages": "[]"}, ["body", "messages"], "invalid_messages"),
        ({"messages": {"messages": MESSAGES}}, ["body", "messages"], "invalid_messages"),
        ({"messages": [{"content": "no role"}]}, ["body", "messages"], "invalid_messages"),
        ({"messages": [*MESSAGES, "hi"]}, ["body", "messages"], "invalid_messages"),
        ({"messages": [{"role": "user", "content": 7}]}, ["body", "messages"], "invalid_messages"),
        (
            {"messages": [{"role": "user", "content": "a" * LONGEST_INPUT_BYTES}]},
            ["body", "messages"],
            "compression_refused",
        ),
    ],
)
async def test_what_is_no_conversation_is_refused_by_name(
    served: Compressing, path: str, fields: dict[str, Any], loc: list[str], kind: str
) -> None:
    if path == "/v1/demo/compress" and kind == "compression_refused":
        kind = "demo_input_too_large"
    assert issues(await served.post(path, {**asked(), **fields}).run()) == [(loc, kind)]
    await served.assert_nothing_is_left_open()


async def test_the_place_of_a_bad_message_is_told(served: Compressing) -> None:
    client = await served.post("/v1/compress", asked(messages=[*MESSAGES, {"role": 3}])).run()
    assert "messages[6].role: must be a string" in client.json()["detail"][0]["msg"]


@BOTH
async def test_a_number_that_json_does_not_have_is_refused(served: Compressing, path: str) -> None:
    raw = json.dumps(asked()).replace("300", "1e999").encode()
    client = await served.post(path, raw).run()
    assert issues(client) == [(["body", "messages"], "invalid_messages")]


@BOTH
async def test_nesting_is_bounded(served: Compressing, path: str) -> None:
    raw = json.dumps(asked()).replace("300", "[" * 300 + "]" * 300).encode()
    ((loc, kind),) = issues(await served.post(path, raw).run())
    assert loc[0] == "body" and kind == "json_too_deep"


async def test_the_demo_bounds_the_characters_of_their_json(served: Compressing) -> None:
    room = DEMO_MAX_CHARS - len('[{"role":"user","content":""}]')
    for more, status in ((0, 200), (1, 422)):
        messages = [{"role": "user", "content": "word " * (room // 5) + "a" * (room % 5 + more)}]
        client = await served.post("/v1/demo/compress", {"query": QUERY, "messages": messages}).run()
        assert client.status == status, client.body


async def test_they_are_charged_and_limited_by_their_json(served: Compressing) -> None:
    await served.new_key(limits=ProjectLimits(tokens_per_minute=len(CANONICAL.encode())))
    client = await served.post("/v1/compress", asked()).run()
    assert client.status == 200, client.body
    (event,) = await served.events()
    assert event["prompt_tokens"] == FakeCounter().count(CANONICAL)
    assert "warranty" not in json.dumps(event, default=str)
    await served.assert_nothing_is_left_open()


@pytest.mark.parametrize("lines", [False, True], ids=["json", "lines"])
async def test_items_of_a_batch_may_be_messages(served: Compressing, lines: bool) -> None:
    items = [
        {"id": "chat", "query": QUERY, "messages": MESSAGES},
        {"id": "text", "query": QUERY, "input": CONTEXT},
        {"id": "both", **asked(), "input": CONTEXT},
        {"id": "neither", "query": QUERY},
    ]
    client = await served.batch(items, lines=lines, include=["spans"]).run()
    if lines:
        answers = [json.loads(line) for line in client.body.splitlines()][:4]
        results = sorted(answers, key=lambda answer: answer["index"])
    else:
        results = client.json()["results"]
    assert [result["status"] for result in results] == ["ok", "ok", "error", "error"]
    assert json.loads(results[0]["output"]) == results[0]["messages"]
    assert set(results[0]["kept"][0]) == {"message", "part", "inner", "start", "end"}
    assert "messages" not in results[1] and set(results[1]["kept"][0]) == {"start", "end", "bytes"}
    assert [result["detail"][0]["loc"][3:] for result in results[2:]] == [["input"], ["input"]]


async def test_a_compressors_word_on_its_input_names_the_messages(served: Compressing) -> None:
    served.model.failures[CANONICAL] = RefusedRequest("input", "is not to my taste")
    assert issues(await served.post("/v1/compress", asked()).run()) == [
        (["body", "messages"], "compression_refused")
    ]


async def test_a_model_that_breaks_json_takes_no_messages(tmp_path: Path) -> None:
    async with compressing(tmp_path, keeps_json=False) as breaking:
        client = await breaking.post("/v1/compress", asked()).run()
        assert issues(client) == [(["body", "messages"], "compression_refused")]
        assert "cuts words in JSON too" in client.json()["detail"][0]["msg"]
        assert (await breaking.compress().run()).status == 200
