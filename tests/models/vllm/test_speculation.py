"""Speculative decoding on vLLM's CPU build: guesses are taken, and a greedy reply is the one without them."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import prometheus_client
import pytest
import pytest_asyncio
import yaml

from models.embedded.install import ensure_checkpoints
from models.engine import EngineChunk, EngineRequest, TokenUsage
from tests.command_blocks import fences
from tests.models.vllm.conftest import CONTEXT
from tests.models.vllm.started import started

if TYPE_CHECKING:
    from models.vllm.engine import VLLMEngine

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    # vLLM's own, and those of what it imports.
    pytest.mark.filterwarnings("ignore"),
]
PAGE = Path(__file__).parents[3] / "docs/engine-features.md"
TOKENS = 48
ASKS = (
    "Tell me about the river, and then about the sea behind the river.",
    "one two three one two three one two three one two",
)


def n_grams() -> dict[str, Any]:
    """As the page has them."""
    blocks = [
        "\n".join(body)
        for _, language, body in fences(PAGE.read_text(encoding="utf-8"))
        if language == "yaml"
    ]
    engines = [yaml.safe_load(block)["models"][0]["engine"].get("args", {}) for block in blocks]
    (found,) = (args["speculative_config"] for args in engines if "speculative_config" in args)
    return dict(found)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def guessing(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[VLLMEngine]:
    folder = ensure_checkpoints(tmp_path_factory.mktemp("checkpoints"))["pith-mini"]
    words = ("--speculative-config", json.dumps(n_grams()))
    async with started(folder, tmp_path_factory.mktemp("guessing"), *words, context=CONTEXT) as engine:
        yield engine


async def reply(engine: VLLMEngine, ask: str) -> tuple[str, TokenUsage]:
    # Without the penalty that pith-mini has by default it repeats itself, which is what n-grams guess.
    options: dict[str, Any] = {"temperature": 0.0, "repetition_penalty": 1.0, "ignore_eos": True}
    messages = ({"role": "user", "content": ask},)
    request = EngineRequest(f"r{time.monotonic_ns()}", "m", messages, TOKENS, False, "salt", options)
    chunks = [chunk async for chunk in engine.generate(request)]
    assert all(isinstance(chunk, EngineChunk) for chunk in chunks), chunks
    whole = json.loads(b"".join(chunk.data for chunk in chunks if isinstance(chunk, EngineChunk)))
    assert isinstance(chunks[-1], EngineChunk)
    return str(whole["choices"][0]["message"]["content"]), chunks[-1].usage


def taken() -> float:
    """Guesses that were right, by vLLM's own count."""
    return sum(
        sample.value
        for family in prometheus_client.REGISTRY.collect()
        for sample in family.samples
        if sample.name == "vllm:spec_decode_num_accepted_tokens_total"
    )


@pytest.mark.parametrize("ask", ASKS)
async def test_a_greedy_reply_is_the_same_with_guesses(
    engine: VLLMEngine, guessing: VLLMEngine, ask: str
) -> None:
    before = taken()
    (text, usage), (alone, usage_alone) = await reply(guessing, ask), await reply(engine, ask)
    assert text == alone
    assert usage.completion_tokens == usage_alone.completion_tokens == TOKENS
    assert usage.prompt_tokens == usage_alone.prompt_tokens
    assert taken() > before
