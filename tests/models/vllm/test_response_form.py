"""vLLM's Responses API on a chat's prompt: counted as it is fed, in OpenAI's shapes, and nothing stored."""

from __future__ import annotations

import json
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from models.engine import EngineChunk, EngineFault, EngineRequest

if TYPE_CHECKING:
    from models.vllm.engine import VLLMEngine

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    # vLLM's own, and those of what it imports.
    pytest.mark.filterwarnings("ignore"),
]
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
REPEATED = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
USER = {"role": "user", "content": "Where is order 4417?"}
PARAMETERS = {"type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"]}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": PARAMETERS}}
CALL = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"order": 4417}'}}
TOOL_TURN = (
    {"role": "system", "content": "Be brief."},
    USER,
    {"role": "assistant", "content": "I look.", "reasoning": "Hm.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "Sent."}]},
)
SCHEMA = {"type": "json_schema", "json_schema": {"name": "s", "schema": PARAMETERS}}
STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["json", "stream"])


def request(
    *messages: dict[str, Any], stream: bool = False, max_tokens: int = 64, **options: Any
) -> EngineRequest:
    form_options = {"response": REPEATED, "namespaces": options.pop("namespaces", {})}
    return EngineRequest(
        f"r{time.monotonic_ns()}",
        "m",
        messages or (USER,),
        max_tokens,
        stream,
        "salt",
        {"temperature": 0.0, **options},
        max_tokens_field=None,
        form="response",
        form_options=form_options,
    )


async def answered(engine: VLLMEngine, asked: EngineRequest) -> tuple[dict[str, Any], EngineChunk, list[str]]:
    """The response, checked by OpenAI's types as each event is; the last chunk; and the events' types."""
    assert await engine.count_tokens(asked) == await engine.count_tokens(as_chat(asked))
    chunks = [item async for item in engine.generate(asked)]
    last, data = chunks[-1], b""
    for chunk in chunks:
        assert isinstance(chunk, EngineChunk), chunk
        data += chunk.data
    assert isinstance(last, EngineChunk)
    assert last.usage.prompt_tokens == await engine.count_tokens(asked)
    if not asked.stream:
        return checked(json.loads(data)), last, []
    events = [json.loads(text.split("\ndata: ")[1]) for text in data.decode().split("\n\n")[:-1]]
    for number, event in enumerate(events):
        assert event["sequence_number"] == number
        EVENT.validate_python(
            {**event, "response": with_usage(event["response"])} if "response" in event else event
        )
    assert last.data.startswith(b"event: response.") and last.data.count(b"event: ") == 1
    return checked(events[-1]["response"]), last, [event["type"] for event in events]


def as_chat(asked: EngineRequest) -> EngineRequest:
    options = {"form": "chat", "form_options": {}}
    return EngineRequest(**{name: getattr(asked, name) for name in EngineRequest.__slots__} | options)


def with_usage(response: dict[str, Any]) -> dict[str, Any]:
    """The service tells the usage once it has settled."""
    return {**response, "usage": None}


def checked(response: dict[str, Any]) -> dict[str, Any]:
    Response.model_validate(with_usage(response))
    return response


@STREAMS
async def test_a_text_is_answered_and_counted_to_the_token(engine: VLLMEngine, stream: bool) -> None:
    asked = request(stream=stream, max_tokens=8, ignore_eos=True, logprobs=True, top_logprobs=2)
    response, last, kinds = await answered(engine, asked)
    assert last.usage.completion_tokens == 8
    assert (response["status"], response["id"]) == ("incomplete", f"resp_{asked.request_id}")
    (part,) = response["output"][0]["content"]
    assert len(part["logprobs"]) == 8
    assert not stream or kinds[-1] == "response.incomplete"


@STREAMS
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "look_up"}}])
async def test_a_function_is_called(engine: VLLMEngine, stream: bool, choice: Any) -> None:
    asked = request(stream=stream, tools=[TOOL], tool_choice=choice, parallel_tool_calls=False)
    response, _, kinds = await answered(engine, asked)
    (call,) = response["output"]
    assert (call["type"], call["name"]) == ("function_call", "look_up")
    assert isinstance(json.loads(call["arguments"])["order"], int)
    assert not stream or "response.function_call_arguments.delta" in kinds


@STREAMS
async def test_a_schema_holds_the_answer(engine: VLLMEngine, stream: bool) -> None:
    response, _, _ = await answered(engine, request(stream=stream, response_format=SCHEMA))
    assert "order" in json.loads(response["output"][0]["content"][0]["text"])


async def test_a_tools_result_is_read_as_a_chat_reads_it(engine: VLLMEngine) -> None:
    response, last, _ = await answered(engine, request(*TOOL_TURN, tools=[TOOL], max_tokens=2))
    assert response["output"] and last.usage.completion_tokens <= 2


@STREAMS
async def test_a_prompt_that_is_too_long_is_refused_as_such(engine: VLLMEngine, stream: bool) -> None:
    (fault,) = [
        item async for item in engine.generate(request({**USER, "content": "hi " * 4000}, stream=stream))
    ]
    assert isinstance(fault, EngineFault)
    assert (fault.kind, fault.param, fault.is_too_long) == ("rejected", "messages", True)


async def test_a_client_that_leaves_stops_the_engine_and_nothing_is_stored(engine: VLLMEngine) -> None:
    asked = request(stream=True, max_tokens=1500, ignore_eos=True)
    async with aclosing(engine.generate(asked)) as items:
        async for item in items:
            assert isinstance(item, EngineChunk)
            if item.usage.completion_tokens >= 4:
                break
    client = engine._client
    assert not client.output_processor.request_states and not client.meters
    layer = engine._forms["response"]._layer  # type: ignore[attr-defined]
    stores = (layer.response_store, layer.msg_store, layer.event_store, layer.background_tasks)
    assert not any(stores)
