"""Whatever stands in the place of whatever, in a body of any dialect: it is answered, and never by a 500."""

from collections.abc import AsyncIterator, Iterator
from copy import deepcopy
from typing import Any

import pytest
import pytest_asyncio

from tests.serve.served import Served, model_document, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Unhashable, empty, of another type, too large for 64 bits, text that no database takes.
WRONG: tuple[Any, ...] = (
    [],
    {},
    [[]],
    [{}],
    [None],
    {"type": []},
    None,
    True,
    -1,
    0.5,
    2**64,
    "",
    "x",
    "\0",
    "\ud800",
)
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
FUNCTION = {"name": "f", "description": "d", "parameters": SCHEMA}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
BODIES: dict[str, dict[str, Any]] = {
    "/openai/v1/chat/completions": {
        "model": "alpha",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi", "compress": True}], "name": "n"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "result"},
            {"role": "user", "content": "hi"},
        ],
        "tools": [{"type": "function", "function": FUNCTION}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}},
        "stream_options": {"include_usage": True},
        "stream": True,
        "stop": ["a"],
        "logit_bias": {"1": 1},
        "compression": False,
    },
    "/openai/v1/completions": {
        "model": "alpha",
        "prompt": ["hi", [1, 2]],
        "stop": ["a"],
        "logprobs": 1,
        "n": 1,
        "stream": False,
        "response_format": {"type": "json_object"},
    },
    "/openai/v1/responses": {
        "model": "alpha",
        "instructions": "Be brief.",
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "result"},
            {
                "type": "reasoning",
                "id": "r",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "t"}],
            },
            {"role": "user", "content": "hi"},
        ],
        "tools": [
            {"type": "function", **FUNCTION},
            {"type": "namespace", "name": "s", "tools": [{"type": "function", **FUNCTION}]},
        ],
        "tool_choice": {"type": "function", "name": "f"},
        "text": {"format": {"type": "json_schema", "name": "s", "schema": SCHEMA}},
        "reasoning": {"effort": "low"},
        "include": ["message.output_text.logprobs"],
        "metadata": {"a": "b"},
    },
    "/anthropic/v1/messages": {
        "model": "alpha",
        "max_tokens": 5,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {}}]},
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c1",
                        "content": [
                            {"type": "tool_reference", "tool_name": "f"},
                            {"type": "text", "text": "r"},
                        ],
                        "is_error": False,
                    }
                ],
            },
        ],
        "tools": [{"name": "f", "input_schema": SCHEMA, "defer_loading": True}],
        "tool_choice": {"type": "tool", "name": "f"},
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
        "stop_sequences": ["a"],
        "metadata": {"user_id": "u"},
    },
    "/openai/v1/batches": {
        "input_file_id": "file-1",
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
        "metadata": {"a": "b"},
    },
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    able = {
        "capabilities": {"tools": True, "reasoning_effort": True},
        "engine": {"enable_auto_tool_choice": True, "tool_call_parser": "hermes"},
    }
    models, server = [model_document("alpha", **able)], {"max_body_bytes": 2**16}
    async with serving(tmp_path_factory.mktemp("served"), models=models, server=server) as service:
        yield await service.renewed()


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Of every value within."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*path, key))


def with_wrong(body: dict[str, Any], path: tuple[str | int, ...], wrong: Any) -> dict[str, Any]:
    found: Any = (changed := deepcopy(body))
    for step in path[:-1]:
        found = found[step]
    found[path[-1]] = wrong
    return changed


@pytest.mark.parametrize("path", BODIES)
async def test_no_wrong_value_is_a_server_error(service: Served, path: str) -> None:
    body = BODIES[path]
    # Else what is wrong would hide behind what is refused before it.
    accepted = await service.post(path, body).run()
    assert accepted.status == (404 if path.endswith("batches") else 200), accepted.body
    answers: dict[str, int] = {}
    for place in places(body):
        for wrong in WRONG:
            client = await service.post(path, with_wrong(body, place, wrong)).run()
            answers[f"{place} = {wrong!r}"] = client.status
    assert {what: status for what, status in answers.items() if status >= 500} == {}


HALF = '{"a": "\\ud800"}'
# What holds it, how its dialect refuses, and where it says that it stands.
HALVES: dict[str, tuple[tuple[str | int, ...], Any, int, str]] = {
    "/v1/chat/completions": (
        ("messages", 1, "tool_calls", 0, "function", "arguments"),
        HALF,
        422,
        "messages.1.tool_calls.0.function.arguments",
    ),
    "/openai/v1/chat/completions": (
        ("messages", 1, "tool_calls", 0, "function", "arguments"),
        HALF,
        400,
        "messages[1].tool_calls[0].function.arguments",
    ),
    "/openai/v1/responses": (("input", 1, "arguments"), HALF, 400, "input[1].arguments"),
    # The body itself holds it there.
    "/anthropic/v1/messages": (("messages", 1, "content", 0, "input"), {"a": "\ud800"}, 400, "hex escape"),
}


@pytest.mark.parametrize("path", HALVES)
async def test_half_a_character_in_a_call_is_refused_where_it_stands(service: Served, path: str) -> None:
    body = BODIES.get(path) or BODIES["/openai/v1/chat/completions"]
    place, wrong, status, named = HALVES[path]
    client = await service.post(path, with_wrong(body, place, wrong)).run()
    assert (client.status, named in client.body.decode().replace('","', ".")) == (status, True), client.body
