"""Conversations that are held out keep their side as they grow, and no more is said to be saved than was."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from billing.caller import NO_LIMITS, Caller
from billing.price import ModelPrice, cost
from compression.pipeline.compression_model import Receipt
from models.engine import TokenUsage
from serve.prompt_compression.blocks import Block
from serve.prompt_compression.compressed_chat import CompressedChat, PreparedPrompt
from serve.prompt_compression.options import settings_of
from serve.prompt_compression.outcome import BlockOutcome, CompressedPrompt, Compression
from serve.prompt_compression.service import conversation_of, is_held_out
from tests.serve.compressing import served_model
from tests.serve.prompt_compression.observing import observed_prompt

KEY = b"k" * 32


def caller(project: str = "p") -> Caller:
    return Caller("w", project, "k", metered=True, limits=NO_LIMITS)


def start(text: str) -> list[dict[str, Any]]:
    return [{"role": "system", "content": "Help."}, {"role": "user", "content": text}]


def test_every_turn_of_a_conversation_is_of_that_conversation() -> None:
    grown = [*start("hi"), {"role": "assistant", "content": "yes?"}, {"role": "user", "content": "more"}]
    assert conversation_of(grown, caller(), KEY) == conversation_of(start("hi"), caller(), KEY)
    assert conversation_of(start("ho"), caller(), KEY) != conversation_of(start("hi"), caller(), KEY)


def test_projects_and_servers_do_not_share_names_of_conversations() -> None:
    names = {
        conversation_of(start("hi"), caller(project), key) for project in "ab" for key in (KEY, b"x" * 32)
    }
    assert len(names) == 4


def test_what_orjson_does_not_write_is_a_conversation_too() -> None:
    assert conversation_of(start("\ud800"), caller(), KEY) != conversation_of(start("\udfff"), caller(), KEY)


def test_the_share_is_held_out() -> None:
    names = [conversation_of(start(str(number)), caller(), KEY) for number in range(4000)]
    assert 0.15 < sum(is_held_out(name, 0.2) for name in names) / len(names) < 0.25
    assert not any(is_held_out(name, 0) for name in names)
    assert all(is_held_out(name, 1) for name in names)


def test_a_conversation_without_a_user_s_message_keeps_its_side_too() -> None:
    begun = [{"role": "system", "content": "Help."}, {"role": "assistant", "content": "Hello."}]
    grown = [*begun, {"role": "tool", "content": "42"}, {"role": "assistant", "content": "So 42."}]
    assert conversation_of(grown, caller(), KEY) == conversation_of(begun, caller(), KEY)


def test_what_an_assistant_says_first_does_not_make_two_conversations_one() -> None:
    greeting = {"role": "assistant", "content": "Hello."}
    assert conversation_of([greeting, *start("a")], caller(), KEY) != conversation_of(
        [greeting, *start("b")], caller(), KEY
    )


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
