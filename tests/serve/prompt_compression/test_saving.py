"""What is said to be saved: never more than was, whatever the engine had cached."""

from __future__ import annotations

import asyncio

import pytest

from billing.price import ModelPrice, cost
from compression.pipeline.request import Receipt
from models.engine import TokenUsage
from serve.prompt_compression.blocks import Block
from serve.prompt_compression.compressed_chat import CompressedChat, PreparedPrompt
from serve.prompt_compression.options import settings_of
from serve.prompt_compression.outcome import BlockOutcome, CompressedPrompt, Compression
from tests.serve.compressing import served_model
from tests.serve.prompt_compression.observing import observed_prompt

CHAT = ModelPrice("chat", 100, 400, 0, cached_input_micro_usd_per_mtok=10)
FREE = ModelPrice("free", 0, 0, 0)


def block(message: int, original: int, output: int) -> BlockOutcome:
    compression = Compression(("kept",), Receipt(original, output, 0.3, 1.0, "words", ()))
    return BlockOutcome(f"cmp_{message}", Block(message, (), ("text",), ""), compression)


async def saved(blocks: list[BlockOutcome], newest: int, original: int, usage: TokenUsage) -> int:
    settings = settings_of(None, None, {"free": served_model()})
    prompt = PreparedPrompt(settings, (), newest, None, False)
    chat = CompressedChat(prompt, CompressedPrompt(tuple(blocks)), CHAT, FREE, observed_prompt())

    async def count() -> int:
        return original

    chat.count = count
    chat.begin_aside()
    await chat.finish_aside()
    charged = cost(
        CHAT,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=0,
        cached_tokens=usage.cached_tokens,
        minimum=True,
    )
    return chat.saving_of(usage, charged, True).saved_nano_usd


@pytest.mark.asyncio
async def test_what_is_new_is_saved_at_the_price_of_input() -> None:
    new = [block(3, 10_000, 3000)]
    assert await saved(new, 2, 11_000, TokenUsage(4000, 0, 900)) == 7000 * 100 // 1000


@pytest.mark.asyncio
async def test_what_was_sent_before_is_saved_at_the_price_of_cached_input() -> None:
    old = [block(1, 10_000, 3000)]
    assert await saved(old, 3, 11_000, TokenUsage(4000, 0, 3500)) == 7000 * 10 // 1000


@pytest.mark.asyncio
async def test_the_same_request_again_saves_what_is_cached_alone() -> None:
    new = [block(3, 10_000, 3000)]
    again = await saved(new, 2, 11_000, TokenUsage(4000, 0, 3984))
    assert again <= 7000 * 11 // 1000


@pytest.mark.asyncio
async def test_where_nothing_is_cached_all_of_it_is_saved_at_the_price_of_input() -> None:
    assert await saved([block(1, 10_000, 3000)], 3, 11_000, TokenUsage(4000, 0, 0)) == 7000 * 100 // 1000


def test_nothing_is_counted_where_nothing_was_compressed() -> None:
    whole = BlockOutcome("", Block(0, (), ("text",), ""), reason="holdout")
    assert asyncio.run(saved([whole], 0, 999, TokenUsage(500, 0, 100))) == 0
