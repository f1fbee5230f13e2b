"""What vLLM counts of a prompt is what it feeds its engine, and a prompt that is too long for it is counted as well."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from models.engine import EngineChunk, EngineFault, EngineRequest
from tests.models.vllm.conftest import CONTEXT

if TYPE_CHECKING:
    from models.vllm.engine import VLLMEngine

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    # vLLM's own, and those of what it imports.
    pytest.mark.filterwarnings("ignore"),
]
ROOT = Path(__file__).parents[3]
PROSE = (ROOT / "docs/request.md").read_text()
CALL = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"order": 4417}'}}
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Says where an order is.",
        "parameters": {"type": "object", "properties": {"order": {"type": "integer"}}},
    },
}


def request(*messages: dict[str, Any], max_tokens: int = 4, **options: Any) -> EngineRequest:
    return EngineRequest(f"r{time.monotonic_ns()}", "m", messages, max_tokens, False, "salt", options)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


CONVERSATIONS = {
    "a word": request(user("Hello")),
    "prose": request(user(PROSE[:2000])),
    "turns": request(
        {"role": "system", "content": "Be brief."},
        user("Hi"),
        {"role": "assistant", "content": "Yes?"},
        user("?"),
    ),
    "parts": request(user([{"type": "text", "text": "One."}, {"type": "text", "text": PROSE[:500]}])),
    "tools": request(
        user("Where is 4417?"),
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": '{"state": "sent", "history": [1, 2, 3]}'},
        tools=[TOOL],
    ),
}


async def fed(engine: VLLMEngine, asked: EngineRequest) -> int:
    """The prompt tokens of a generation."""
    *_, last = [item async for item in engine.generate(asked)]
    assert isinstance(last, EngineChunk), last
    return last.usage.prompt_tokens


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_a_prompt_is_counted_as_it_is_fed(engine: VLLMEngine, name: str) -> None:
    asked = CONVERSATIONS[name]
    counts = [await engine.count_tokens(asked, beyond_context=beyond) for beyond in (False, True)]
    assert counts == [await fed(engine, asked)] * 2


async def test_a_prompt_over_the_context_is_counted_only_where_that_is_asked(engine: VLLMEngine) -> None:
    from tokenizers import Tokenizer

    long = "\n".join([PROSE] * 40)
    (first, *rest) = CONVERSATIONS["tools"].messages
    asked = request(user(long), *rest, tools=[TOOL])
    refused = await engine.count_tokens(asked)
    assert isinstance(refused, EngineFault) and (refused.kind, refused.param) == ("rejected", "messages")
    counted = await engine.count_tokens(asked, beyond_context=True)
    short = await engine.count_tokens(request(first, *rest, tools=[TOOL]))
    tokenizer = Tokenizer.from_file(str(ROOT / "models/embedded/tokenizer/tokenizer.json"))
    texts = [len(tokenizer.encode(text, add_special_tokens=False).ids) for text in (first["content"], long)]
    assert isinstance(counted, int) and isinstance(short, int)
    assert counted > 40 * CONTEXT and counted - short == texts[1] - texts[0]
    # Nothing of it stays: what is too long for the engine still is.
    assert isinstance(await engine.count_tokens(asked), EngineFault)


async def test_a_long_count_keeps_nobody_waiting_and_can_be_given_up(engine: VLLMEngine) -> None:
    asked = request(user("\n".join([PROSE] * 600)))
    counting = asyncio.create_task(engine.count_tokens(asked, beyond_context=True))
    for _ in range(100):
        await asyncio.sleep(0.001)
    assert not counting.done()
    assert isinstance(await engine.count_tokens(CONVERSATIONS["a word"], beyond_context=True), int)
    assert not counting.done()
    counting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await counting
    assert isinstance(await engine.count_tokens(CONVERSATIONS["a word"], beyond_context=True), int)
