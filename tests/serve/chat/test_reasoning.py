"""What a model thinks before it answers: the service in this process, a real vLLM engine, and OpenAI's client."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import httpx
import openai
import pytest
import pytest_asyncio
from anthropic.types import Message

from models.engine import EngineChunk, EngineFault, EngineRequest, PromptBound
from tests.models.vllm.started import started
from tests.models.vllm.thinking import END_OF_THOUGHT, thinking_checkpoint
from tests.serve.served import Served, model_document, serving

if TYPE_CHECKING:
    from models.vllm.engine import VLLMEngine

pytestmark = [
    pytest.mark.integration,
    pytest.mark.asyncio(loop_scope="session"),
    # vLLM's own, and those of what it imports.
    pytest.mark.filterwarnings("ignore"),
]
ASK: list[Any] = [{"role": "user", "content": "What is the weather in Turin?"}]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Turin", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER: Any = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
ABLE = {
    "capabilities": {"tools": True, "reasoning_effort": True, "chat_template_kwargs": ["enable_thinking"]},
    "engine": {"enable_auto_tool_choice": True, "tool_call_parser": "hermes", "reasoning_parser": "qwen3"},
}


@dataclass
class InProcess:
    """The `models.engine.Engine` of a replica's engine in this process."""

    replica: VLLMEngine

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        if request.form == "message":
            # What a chat asks for here to end its thoughts early, and Anthropic's body cannot.
            options = {**request.options, "logit_bias": {END_OF_THOUGHT: 4}, "ignore_eos": True}
            request = replace(request, options=options)
        async for item in self.replica.generate(request):
            if isinstance(item, EngineFault):
                raise item.error()
            yield item

    def prompt_bound(self) -> PromptBound | None:
        return None

    async def count_tokens(self, request: EngineRequest, *, beyond_context: bool = False) -> int:
        counted = await self.replica.count_tokens(request, beyond_context=beyond_context)
        assert isinstance(counted, int)
        return counted

    async def ready(self) -> bool:
        return True


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def thinker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    checkpoint = thinking_checkpoint(tmp_path_factory.mktemp("checkpoints"))
    temporary = tmp_path_factory.mktemp("engine")
    models = [model_document("alpha", **ABLE), model_document("beta")]
    async with (
        started(checkpoint, temporary, "--reasoning-parser", "qwen3", model_id="alpha") as replica,
        serving(cast(Path, tmp_path_factory.mktemp("serving")), models=models) as served,
    ):
        served = await served.renewed()
        served.switch.engine = cast(Any, InProcess(replica))
        yield served


@pytest_asyncio.fixture(loop_scope="session", params=["/v1", "/openai/v1"])
async def client(request: pytest.FixtureRequest, thinker: Served) -> AsyncIterator[openai.AsyncOpenAI]:
    transport = httpx.ASGITransport(thinker.api)
    async with openai.AsyncOpenAI(
        base_url=f"http://test{request.param}",
        api_key=thinker.key,
        max_retries=0,
        http_client=httpx.AsyncClient(transport=transport),
    ) as made:
        yield made


async def ask(client: openai.AsyncOpenAI, **fields: Any) -> Any:
    """`logit_bias` has the model end its thoughts early."""
    options: dict[str, Any] = {
        "max_tokens": 40,
        "temperature": 0,
        "logit_bias": {END_OF_THOUGHT: 4},
        "extra_body": {"ignore_eos": True},
        **fields,
    }
    return await client.chat.completions.create(model="alpha", messages=ASK, **options)


async def test_thoughts_come_apart_from_the_answer_and_are_counted(client: openai.AsyncOpenAI) -> None:
    reply = await ask(client)
    message, usage = reply.choices[0].message, reply.usage
    assert message.reasoning and message.content
    assert not {"<think>", "</think>"} & set(message.reasoning.split())
    assert usage.completion_tokens == 40
    assert 0 < usage.completion_tokens_details.reasoning_tokens < 40


async def test_a_stream_tells_the_same_thoughts_answer_and_count(client: openai.AsyncOpenAI) -> None:
    plain = await ask(client)
    thoughts, last = "", None
    kinds: list[str] = []
    async for chunk in await ask(client, stream=True, stream_options={"include_usage": True}):
        last = chunk
        for choice in chunk.choices:
            thought = getattr(choice.delta, "reasoning", None) or ""
            thoughts += thought
            kinds += ["thought"] * bool(thought) + ["answer"] * bool(choice.delta.content)
    assert thoughts == plain.choices[0].message.reasoning
    assert "".join(sorted(kinds, reverse=True)) == "".join(kinds) and set(kinds) == {"thought", "answer"}
    assert last is not None and last.usage is not None
    assert (
        last.usage == plain.usage
        or last.usage.completion_tokens_details == plain.usage.completion_tokens_details
    )


async def test_an_effort_reaches_the_template_and_none_turns_thinking_off(client: openai.AsyncOpenAI) -> None:
    usual, low = await ask(client), await ask(client, reasoning_effort="low")
    assert low.usage.prompt_tokens > usual.usage.prompt_tokens
    for fields in (
        {"reasoning_effort": "none"},
        {"extra_body": {"ignore_eos": True, "chat_template_kwargs": {"enable_thinking": False}}},
    ):
        off = await ask(client, **fields)
        assert off.choices[0].message.content and "reasoning" not in off.choices[0].message.model_fields_set
        assert off.usage.completion_tokens_details is None


async def test_a_model_thinks_before_a_call_and_before_a_format(client: openai.AsyncOpenAI) -> None:
    fields: dict[str, Any] = {"max_tokens": 200, "extra_body": {}}
    called = await ask(client, tools=[WEATHER], tool_choice="required", **fields)
    (call,) = called.choices[0].message.tool_calls
    assert json.loads(call.function.arguments)["city"] in ("Turin", "Oslo")
    held = await ask(client, response_format=FORMAT, **fields)
    assert json.loads(held.choices[0].message.content)["city"] in ("Turin", "Oslo")
    for reply in (called, held):
        assert reply.choices[0].message.reasoning
        assert reply.usage.completion_tokens_details.reasoning_tokens > 0


async def test_a_response_has_its_thoughts_in_an_item_of_their_own(thinker: Served) -> None:
    """Whole and streamed, with an answer, a format or a call after them."""
    fields: dict[str, Any] = {"model": "alpha", "input": ASK, "temperature": 0, "max_output_tokens": 200}
    fields |= {"logit_bias": {END_OF_THOUGHT: 4}}
    text = {"format": {"type": "json_schema", "name": "s", "schema": SCHEMA}}
    tools = [{"type": "function", "name": "weather", "parameters": SCHEMA}]
    cases: tuple[tuple[str, dict[str, Any]], ...] = (
        ("message", {"max_output_tokens": 40, "ignore_eos": True}),
        ("message", {"text": text}),
        ("function_call", {"tools": tools, "tool_choice": "required", "parallel_tool_calls": False}),
    )
    for last, options in cases:
        client = thinker.post("/openai/v1/responses", {**fields, **options})
        whole = (await client.run()).json()
        assert [item["type"] for item in whole["output"]] == ["reasoning", last]
        thought = whole["output"][0]["content"][0]["text"]
        assert thought and 0 < whole["usage"]["output_tokens_details"]["reasoning_tokens"] < 200
        stream = await thinker.post("/openai/v1/responses", {**fields, **options, "stream": True}).run()
        events = [json.loads(event.split("\ndata: ")[1]) for event in stream.body.decode().split("\n\n")[:-1]]
        told = "".join(e["delta"] for e in events if e["type"] == "response.reasoning_text.delta")
        closing = events[-1]["response"]
        assert told == thought == closing["output"][0]["content"][0]["text"]
        assert closing["usage"]["output_tokens_details"] == whole["usage"]["output_tokens_details"]


async def test_the_contract_refuses_an_effort_where_the_model_takes_none(thinker: Served) -> None:
    asked = {"model": "beta", "messages": ASK, "reasoning_effort": "low"}
    reply = await thinker.post("/v1/chat/completions", asked).run()
    assert reply.status == 400 and "reasoning_effort" in reply.json()["error"]["message"]


async def test_a_message_has_its_thoughts_in_a_block_of_their_own(thinker: Served) -> None:
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(thinker.api),
        base_url="http://test/anthropic/v1",
        headers={"x-api-key": thinker.key},
    ) as client:

        async def post(path: str, **fields: Any) -> httpx.Response:
            body = {"model": "alpha", "messages": ASK, "max_tokens": 40, "temperature": 0, **fields}
            return await client.post(path, json=body)

        message = Message.model_validate((await post("/messages")).json())
        thought, answer = message.content
        assert thought.type == "thinking" and thought.thinking and answer.type == "text" and answer.text
        details = message.usage.output_tokens_details
        assert details is not None and 0 < details.thinking_tokens < message.usage.output_tokens
        lines = (await post("/messages", stream=True)).text.splitlines()
        events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
        starts = [event["content_block"] for event in events if event["type"] == "content_block_start"]
        assert starts[0] == {"type": "thinking", "thinking": "", "signature": ""}
        assert [start["type"] for start in starts] == ["thinking", "text"]
        said = [event["delta"] for event in events if event["type"] == "content_block_delta"]
        assert "".join(delta.get("thinking", "") for delta in said) == thought.thinking
        assert any(delta.get("text") for delta in said)
        assert events[-2]["usage"]["output_tokens_details"] == details.model_dump()
        low = (await post("/messages", max_tokens=1, output_config={"effort": "low"})).json()["usage"]
        assert low["input_tokens"] + low["cache_read_input_tokens"] > message.usage.input_tokens
        # Thoughts that are sent back are no part of the next prompt.
        turn = {"role": "assistant", "content": [block.model_dump() for block in message.content]}
        plain = {"role": "assistant", "content": answer.text}
        counts = [
            (await post("/messages/count_tokens", messages=[*ASK, each, *ASK])).json()["input_tokens"]
            for each in (turn, plain)
        ]
        assert counts[0] == counts[1]
