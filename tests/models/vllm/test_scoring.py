"""Scores of replies on vLLM: what the engine itself said when it generated them, in pieces, and within a bound."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from models.engine import EngineChunk, EngineFault, EngineRequest, ScoredReply

if TYPE_CHECKING:
    from models.vllm.engine import VLLMEngine

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    # vLLM's own, and those of what it imports.
    pytest.mark.filterwarnings("ignore"),
]
LONG = "The river runs past the old mill, and the miller counts sacks of flour. " * 30
TOLD = {
    "temperature": 0.0,
    "logprobs": True,
    "top_logprobs": 1,
    "repetition_penalty": 1.0,
    "ignore_eos": True,
}


def request(text: str, name: str, *, max_tokens: int = 40, **options: Any) -> EngineRequest:
    messages = ({"role": "user", "content": text},)
    return EngineRequest(name, "m", messages, max_tokens, False, "salt", {**TOLD, **options}, keep_reply=512)


class Turns:
    """Counts the pieces."""

    def __init__(self) -> None:
        self.taken = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        self.taken += 1
        yield


async def generated(engine: VLLMEngine, asked: EngineRequest) -> EngineChunk:
    items = [item async for item in engine.generate(asked)]
    last = items[-1]
    assert isinstance(last, EngineChunk), last
    assert all(isinstance(item, EngineChunk) and not item.reply for item in items[:-1])
    return last


async def scored(
    engine: VLLMEngine, asked: EngineRequest, reply: tuple[int, ...], turns: Turns
) -> ScoredReply:
    found = await engine.score(asked, reply, turns.turn)
    assert isinstance(found, ScoredReply), found
    return found


@pytest.mark.parametrize(("text", "tokens"), [("Tell me about the river.", 40), (LONG, 300), (LONG, 1)])
async def test_a_reply_after_its_own_prompt_is_as_likely_as_when_it_was_generated(
    engine: VLLMEngine, text: str, tokens: int
) -> None:
    asked, turns = request(text, f"own-{len(text)}-{tokens}", max_tokens=tokens), Turns()
    last = await generated(engine, asked)
    assert len(last.reply) == tokens
    found = await scored(engine, asked, last.reply, turns)
    told = [one["logprob"] for one in json.loads(last.data)["choices"][0]["logprobs"]["content"]]
    assert found.log_probs == pytest.approx(told, abs=1e-3)
    assert found.likeliest == last.reply
    assert found.prompt_tokens == last.usage.prompt_tokens
    # A long prompt is read in pieces, and so is a long reply.
    assert turns.taken >= (4 if text == LONG else 1) and found.engine_s > 0


async def test_a_streamed_reply_has_the_same_tokens(engine: VLLMEngine) -> None:
    asked = request("Tell me about the sea.", "whole")
    whole = await generated(engine, asked)
    streamed = await generated(engine, replace(asked, stream=True, request_id="streamed"))
    assert whole.reply == streamed.reply and len(whole.reply) == 40


async def test_tokens_are_kept_where_they_are_asked_for_and_of_one_choice(engine: VLLMEngine) -> None:
    few = await generated(engine, replace(request("Hello.", "few"), keep_reply=3))
    assert len(few.reply) == 3
    assert (await generated(engine, replace(request("Hello.", "none"), keep_reply=0))).reply == ()
    assert (await generated(engine, request("Hello.", "two", n=2, temperature=1.0))).reply == ()


async def test_a_reply_is_less_likely_after_a_prompt_that_does_not_have_what_it_says(
    engine: VLLMEngine,
) -> None:
    last = await generated(engine, request("Say: one two three. one two three. one two three.", "with"))
    own = await scored(
        engine, request("Say: one two three. one two three. one two three.", "a"), last.reply, Turns()
    )
    other = await scored(engine, request(LONG, "b"), last.reply, Turns())
    assert sum(own.log_probs) > sum(other.log_probs)
    assert other.likeliest != last.reply


async def test_it_goes_on_beside_other_requests(engine: VLLMEngine) -> None:
    asked = request(LONG, "beside", max_tokens=120)
    last = await generated(engine, asked)
    alone = await scored(engine, replace(asked, request_id="alone"), last.reply, Turns())
    beside, *_ = await asyncio.gather(
        scored(engine, replace(asked, request_id="crowd"), last.reply, Turns()),
        *(generated(engine, request(f"{number} {LONG}", f"other-{number}")) for number in range(6)),
    )
    assert beside.log_probs == pytest.approx(alone.log_probs, abs=1e-3)


async def test_a_prompt_that_is_too_long_is_refused(engine: VLLMEngine) -> None:
    found = await engine.score(request(LONG * 10, "long"), (1, 2), Turns().turn)
    assert isinstance(found, EngineFault) and found.is_too_long


async def test_what_was_dropped_from_the_cache_is_not_computed_whole(engine: VLLMEngine) -> None:
    """The core lets it go without its log probabilities, and goes on."""
    asked, turns = request(LONG, "dropped"), Turns()

    @asynccontextmanager
    async def forgetful() -> AsyncIterator[None]:
        await engine._client.reset_prefix_cache()
        yield

    found = await engine.score(asked, (1, 2, 3), forgetful)
    assert isinstance(found, EngineFault) and found.kind == "unavailable"
    assert "dropped" in found.message
    assert (await scored(engine, replace(asked, request_id="after"), (1, 2, 3), turns)).log_probs
