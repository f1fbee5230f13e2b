"""Completions and messages as vLLM makes them: what OpenAI's and Anthropic's packages read, and every token counted."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from openai.types import Completion
from pydantic import TypeAdapter

from models.engine import CONTINUES, EngineChunk, EngineFault, EngineRequest, TokenUsage

if TYPE_CHECKING:
    from models.vllm.engine import VLLMEngine

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    # vLLM's own, and those of what it imports.
    pytest.mark.filterwarnings("ignore"),
]
EVENT: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)
USAGE = {"input_tokens": 1, "output_tokens": 1}
CALL_TOOL = {
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "look_up",
                "parameters": {
                    "type": "object",
                    "properties": {"new": {"type": "boolean"}},
                    "required": ["new"],
                    "additionalProperties": False,
                },
            },
        }
    ],
    "tool_choice": {"type": "function", "function": {"name": "look_up"}},
}


def completion(*prompts: Any, max_tokens: int = 4, stream: bool = False, **fields: Any) -> EngineRequest:
    form_options = {name: fields.pop(name) for name in ("echo", "logprobs") if name in fields}
    options = {"temperature": 0.0, **fields}
    return EngineRequest(
        f"r{time.monotonic_ns()}",
        "m",
        (),
        max_tokens,
        stream,
        "salt",
        options,
        form="completion",
        prompts=prompts,
        form_options=form_options,
    )


def message(max_tokens: int = 8, stream: bool = False, **options: Any) -> EngineRequest:
    messages = ({"role": "user", "content": "Where is my order 4417?"},)
    options = {"temperature": 0.0, **options}
    return EngineRequest(
        f"r{time.monotonic_ns()}", "m", messages, max_tokens, stream, "salt", options, form="message"
    )


async def reply(engine: VLLMEngine, request: EngineRequest) -> tuple[bytes, EngineChunk]:
    """All data before the last chunk, and the last chunk."""
    items = [item async for item in engine.generate(request)]
    *before, last = items
    assert isinstance(last, EngineChunk) and last.finished, last
    usages = [item.usage for item in items if isinstance(item, EngineChunk)]
    assert all(a.prompt_tokens <= b.prompt_tokens for a, b in pairwise(usages))
    return b"".join(item.data for item in before if isinstance(item, EngineChunk)), last


async def refusal(engine: VLLMEngine, request: EngineRequest) -> EngineFault:
    *_, last = [item async for item in engine.generate(request)]
    assert isinstance(last, EngineFault), last
    return last


def openai_chunks(data: bytes) -> list[Any]:
    return [json.loads(event.removeprefix(b"data: ")) for event in data.split(b"\n\n") if event]


def message_events(data: bytes) -> list[Any]:
    pairs = [event.split(b"\ndata: ") for event in data.split(b"\n\n") if event]
    events = [json.loads(fields) for _, fields in pairs]
    assert [name for name, _ in pairs] == [f"event: {event['type']}".encode() for event in events]
    for event in events:
        EVENT.validate_python(event)
    return events


PROMPTS: dict[str, tuple[Any, ...]] = {
    "a text": ("The order",),
    "texts": ("The order", "Yesterday we", "A", "B", "C", "D", "E"),
    "token ids": ((5, 6, 7, 8),),
    "lists of token ids": ((5, 6, 7, 8), (9,), (10, 11)),
}


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("name", PROMPTS)
async def test_every_choice_of_every_prompt_is_answered_and_counted(
    engine: VLLMEngine, name: str, n: int
) -> None:
    prompts = PROMPTS[name]
    asked = completion(*prompts, n=n, ignore_eos=True)
    _, last = await reply(engine, asked)
    whole = Completion.model_validate({**json.loads(last.data)})
    assert [choice.index for choice in whole.choices] == list(range(n * len(prompts)))
    assert {choice.finish_reason for choice in whole.choices} == {"length"}
    counted = await engine.count_tokens(asked)
    assert last.usage == TokenUsage(counted, 4 * n * len(prompts), last.usage.cached_tokens)
    data, ended = await reply(engine, completion(*prompts, n=n, ignore_eos=True, stream=True))
    assert (ended.usage.prompt_tokens, ended.usage.completion_tokens) == (counted, 4 * n * len(prompts))
    texts = [""] * len(whole.choices)
    for chunk in openai_chunks(data):
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts == [choice.text for choice in whole.choices]


@pytest.mark.parametrize(("stream", "n"), [(False, 1), (False, 2), (True, 1)])
async def test_an_echo_has_the_prompt_and_its_log_probabilities(
    engine: VLLMEngine, stream: bool, n: int
) -> None:
    asked = completion("The order is", echo=True, logprobs=2, n=n, stream=stream, max_tokens=3)
    data, last = await reply(engine, asked)
    pieces = openai_chunks(data) if stream else [json.loads(last.data)]
    firsts = {choice["index"]: choice for piece in reversed(pieces) for choice in piece["choices"]}
    assert sorted(firsts) == list(range(n))
    for first in firsts.values():
        assert first["text"].startswith("The order is")
        assert first["logprobs"]["token_logprobs"][0] is None
        assert len(first["logprobs"]["top_logprobs"][1]) >= 2
    assert not stream or last.data == b""


@pytest.mark.parametrize("stream", [False, True])
async def test_an_echo_alone_costs_its_prompt(engine: VLLMEngine, stream: bool) -> None:
    asked = completion("The order is", echo=True, max_tokens=0, stream=stream)
    data, last = await reply(engine, asked)
    (piece, *_) = openai_chunks(data) if stream else [json.loads(last.data)]
    assert piece["choices"][0]["text"] == "The order is"
    assert last.usage.completion_tokens == 0 and last.usage.prompt_tokens > 0


async def test_a_completion_that_ends_early_was_billed_for_what_was_begun(engine: VLLMEngine) -> None:
    stream = engine.generate(completion(*["The order"] * 8, max_tokens=64, ignore_eos=True, stream=True))
    async for item in stream:
        assert isinstance(item, EngineChunk)
        if item.data:
            break
    await stream.aclose()
    one = await engine.count_tokens(completion("The order"))
    assert isinstance(one, int)
    # An engine of four places works on one prompt of a request at a time.
    assert item.usage.prompt_tokens == one and 0 < item.usage.completion_tokens < 64
    await asyncio.sleep(0)
    assert not engine._client.meters


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        (completion("a " * 3000), "prompt"),
        (completion("fine", "a " * 3000, stream=True), "prompt"),
        (completion((5, 10**6)), None),
        (completion((5, 10**6), stream=True), None),
        (completion(tuple([5] * 2048)), "prompt"),
        (
            completion(
                "fine",
                response_format={
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": {"$ref": "#/no"}},
                },
            ),
            "response_format",
        ),
    ],
)
async def test_a_refused_completion_names_its_field(
    engine: VLLMEngine, asked: EngineRequest, param: str | None
) -> None:
    fault = await refusal(engine, asked)
    assert (fault.kind, fault.param) == ("rejected", param), fault


@pytest.mark.parametrize("stream", [False, True])
async def test_json_is_held_to_its_schema_for_each_prompt(engine: VLLMEngine, stream: bool) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    asked = completion("One", "Two", response_format=form, max_tokens=40, stream=stream)
    data, last = await reply(engine, asked)
    texts = ["", ""]
    for piece in openai_chunks(data) if stream else [json.loads(last.data)]:
        for choice in piece["choices"]:
            texts[choice["index"]] += choice["text"]
    assert all(isinstance(json.loads(text)["a"], bool) for text in texts)


async def test_a_message_is_anthropics(engine: VLLMEngine) -> None:
    _, last = await reply(engine, message())
    whole = Message.model_validate({**json.loads(last.data), "usage": USAGE})
    assert whole.stop_reason in ("max_tokens", "end_turn") and whole.content[0].type == "text"
    assert whole.id.startswith("msg_") and last.usage.prompt_tokens == await engine.count_tokens(message())


async def test_a_reply_that_was_begun_is_continued(engine: VLLMEngine) -> None:
    whole = text_of(await reply(engine, message(max_tokens=16)))
    begun = whole[: whole.index(" ", len(whole) // 2)]
    asked = message(max_tokens=16)
    turns = (*asked.messages, {"role": "assistant", "content": begun})
    continued = replace(asked, messages=turns, form_options={CONTINUES: True}, request_id="continued")
    answered = await reply(engine, continued)
    # Greedily, it goes on as it would have.
    assert (begun + text_of(answered)).startswith(whole)
    assert answered[1].usage.prompt_tokens == await engine.count_tokens(continued)


def text_of(answered: tuple[bytes, EngineChunk]) -> str:
    return str(json.loads(answered[1].data)["content"][0]["text"])


async def test_a_streamed_message_keeps_its_closing_events_for_its_last_piece(engine: VLLMEngine) -> None:
    data, last = await reply(engine, message(stream=True))
    events = message_events(data)
    assert [event["type"] for event in events[:2]] == ["message_start", "content_block_start"]
    assert events[-1]["type"] == "content_block_stop"
    usage = events[0]["message"]["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == last.usage.prompt_tokens
    closing = message_events(last.data)
    assert [event["type"] for event in closing] == ["message_delta", "message_stop"]


async def test_a_call_that_was_asked_for_is_a_tool_use(engine: VLLMEngine) -> None:
    _, last = await reply(engine, message(200, **CALL_TOOL))
    whole = Message.model_validate({**json.loads(last.data), "usage": USAGE})
    (block,) = whole.content
    assert block.type == "tool_use" and block.name == "look_up" and list(block.input) == ["new"]
    assert whole.stop_reason == "tool_use"
    data, last = await reply(engine, message(200, stream=True, **CALL_TOOL))
    events = message_events(data)
    assert events[1]["content_block"]["type"] == "tool_use"
    pieces = [event["delta"]["partial_json"] for event in events if event["type"] == "content_block_delta"]
    assert json.loads("".join(pieces)) == block.input
    assert message_events(last.data)[0]["delta"]["stop_reason"] == "tool_use"


@pytest.mark.parametrize("max_tokens", [4, 20])
async def test_a_call_that_the_limit_cut_is_a_message_all_the_same(
    engine: VLLMEngine, max_tokens: int
) -> None:
    for stream in (False, True):
        data, last = await reply(engine, message(max_tokens, stream=stream, **CALL_TOOL))
        message_events(data)
        ended = message_events(last.data)[0]["delta"] if stream else json.loads(last.data)
        assert ended["stop_reason"] == "max_tokens"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_sequence_is_named(engine: VLLMEngine, stream: bool) -> None:
    _, told = await reply(engine, message(30))
    text = json.loads(told.data)["content"][0]["text"]
    stop = text.split()[2]
    _, last = await reply(engine, message(30, stream=stream, stop=[stop]))
    ended = message_events(last.data)[0]["delta"] if stream else json.loads(last.data)
    assert (ended["stop_reason"], ended["stop_sequence"]) == ("stop_sequence", stop)


async def test_thoughts_are_a_block_of_their_own_and_are_counted() -> None:
    """Of a chat's stream as vLLM writes it where a reasoning parser is configured."""
    from models.vllm.counting_client import meters_of
    from models.vllm.insides import message_converters
    from models.vllm.message_form import MessageEvents

    deltas = [{"role": "assistant", "content": ""}, {"reasoning": "Hm."}, {"content": "Yes."}]
    choices: list[list[Any]] = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas]
    choices += [[{"index": 0, "delta": {}, "finish_reason": "stop"}], []]
    details = {"completion_tokens_details": {"reasoning_tokens": 2}}
    usage = {"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12, **details}

    async def chat() -> AsyncGenerator[str, None]:
        head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        for each in choices:
            chunk = {**head, "choices": each, **({} if each else {"usage": usage})}
            yield f"data: {json.dumps(chunk, separators=(',', ':'))}\n\n"
        yield "data: [DONE]\n\n"

    asked = message(stream=True)
    meter = meters_of(asked, ["c"], None, places=4)
    events = MessageEvents(asked, meter, message_converters().message_stream_converter)
    read = message_events(b"".join([event async for event in events.read(chat())]))
    starts = [event["content_block"]["type"] for event in read if event["type"] == "content_block_start"]
    assert starts == ["thinking", "text"] and meter.reasoning_tokens == 2
    assert [event["type"] for event in message_events(events.closing())] == ["message_delta", "message_stop"]
