"""A chat's tool calls as a real engine's pieces have them: whole, streamed, and cut off by the token limit."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from models.engine import EngineChunk, EngineRequest

if TYPE_CHECKING:
    from models.vllm.engine import VLLMEngine

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    # vLLM's own, and those of what it imports.
    pytest.mark.filterwarnings("ignore"),
]
ASK = ({"role": "user", "content": "Is it new?"},)
SCHEMA = {
    "type": "object",
    "properties": {"new": {"type": "boolean"}},
    "required": ["new"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": SCHEMA, "strict": False}}]
# The call has more tokens; its name is within these.
TOO_FEW = 34


async def choice_of(engine: VLLMEngine, *, max_tokens: int, stream: bool) -> tuple[str, list[Any]]:
    """Why the one choice ended, and its messages or its deltas."""
    options = {"temperature": 0.0, "tools": TOOLS, "tool_choice": "required"}
    asked = EngineRequest(f"r{time.monotonic_ns()}", "m", ASK, max_tokens, stream, "salt", options)
    data = b""
    async for item in engine.generate(asked):
        assert isinstance(item, EngineChunk), item
        data += item.data
    replies = (
        [json.loads(event.removeprefix(b"data: ")) for event in data.split(b"\n\n") if event]
        if stream
        else [json.loads(data)]
    )
    choices = [choice for reply in replies for choice in reply["choices"]]
    (reason,) = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    return reason, [choice.get("delta") or choice.get("message") for choice in choices]


async def test_a_call_in_one_piece_fits_the_schema(engine: VLLMEngine) -> None:
    reason, (message,) = await choice_of(engine, max_tokens=100, stream=False)
    (call,) = message["tool_calls"]
    assert reason == "tool_calls" and call["function"]["name"] == "look_up"
    assert json.loads(call["function"]["arguments"])["new"] in (True, False)


@pytest.mark.parametrize("max_tokens", [TOO_FEW, 100])
async def test_a_stream_says_whether_its_call_is_whole(engine: VLLMEngine, max_tokens: int) -> None:
    reason, deltas = await choice_of(engine, max_tokens=max_tokens, stream=True)
    functions = [call["function"] for delta in deltas if delta for call in delta.get("tool_calls") or ()]
    assert "".join(function.get("name") or "" for function in functions) == "look_up"
    arguments = "".join(function.get("arguments") or "" for function in functions)
    if max_tokens == TOO_FEW:
        assert reason == "length" and not arguments.endswith("}")
    else:
        assert reason == "tool_calls" and json.loads(arguments)["new"] in (True, False)
