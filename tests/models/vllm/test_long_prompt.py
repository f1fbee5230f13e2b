"""Prompts of any length are counted in pieces: as the whole would be, in turns, and no further than is asked."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

from models.engine import EngineRequest
from models.vllm.prompts import PIECE_CHARS, SHORT_CHARS, note_length, pieces_of, without_a_limit

ROOT = Path(__file__).parents[3]
EMBEDDED = ROOT / "models/embedded/tokenizer/tokenizer.json"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(EMBEDDED))


def texts() -> Iterator[str]:
    for name in ("README.md", "docs/billing.md", "serve/app.py", "docs/request.md"):
        yield (ROOT / name).read_text()


@given(st.text(), st.integers(1, 40))
def test_the_pieces_are_the_text_and_none_is_longer(text: str, chars: int) -> None:
    pieces = list(pieces_of(text, chars=chars))
    assert "".join(pieces) == text and all(len(piece) <= chars for piece in pieces)
    assert pieces == [""] or all(pieces)


@pytest.mark.parametrize("chars", [1000, 4000])
def test_prose_code_and_json_have_as_many_tokens_in_pieces(tokenizer: Tokenizer, chars: int) -> None:
    for text in texts():
        whole = len(tokenizer.encode(text, add_special_tokens=False).ids)
        pieces = [
            tokenizer.encode(piece, add_special_tokens=False).ids for piece in pieces_of(text, chars=chars)
        ]
        assert sum(map(len, pieces)) == whole


# How GPT-2's, Llama 3's and Qwen's tokenizers, and those of GPT-4o, split before they merge.
SPLITS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "gpt4o": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
WORDS = st.sampled_from(
    ["a", "Word", "don't", "é", "7", "12345", "_", ".", "!", "//", " ", "  ", "\n", "\n\n", "\t", "\r\n"]
)


@pytest.mark.parametrize("name", SPLITS)
@given(st.lists(WORDS, max_size=60), st.integers(20, 40))
def test_a_cut_between_words_is_one_that_tokenizers_make_too(name: str, words: list[str], chars: int) -> None:
    splits = Sequence(
        [Split(Regex(SPLITS[name]), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    text = "".join(words)
    pieces = list(pieces_of(text, chars=chars))
    if all(len(piece) < chars for piece in pieces[:-1]):
        found = [part for piece in pieces for part, _ in splits.pre_tokenize_str(piece)]
        assert found == [part for part, _ in splits.pre_tokenize_str(text)]


@dataclass(frozen=True)
class FakeParams:
    max_total_tokens: int | None


@dataclass
class FakeRenderer:
    """A character is a token; what it was given is noted, and `until` holds every text back."""

    limit: int
    given: list[str] = field(default_factory=list)
    until: asyncio.Event = field(default_factory=asyncio.Event)

    async def tokenize_prompt_async(self, prompt: dict[str, Any], params: FakeParams) -> dict[str, Any]:
        await self.until.wait()
        text = prompt["prompt"]
        if params.max_total_tokens is not None and len(text) > params.max_total_tokens:
            raise ValueError("too long")
        self.given.append(text)
        await asyncio.sleep(0)
        return {"prompt_token_ids": list(text)}


@dataclass
class FakeOnlineRenderer:
    renderer: FakeRenderer

    async def count(self, text: str) -> int:
        params = FakeParams(self.renderer.limit)
        return len((await self.renderer.tokenize_prompt_async({"prompt": text}, params))["prompt_token_ids"])


async def test_what_is_too_long_is_counted_and_still_refused_elsewhere() -> None:
    online = FakeOnlineRenderer(FakeRenderer(limit=10))
    online.renderer.until.set()
    text = "word " * PIECE_CHARS
    assert await without_a_limit(online, asyncio.Lock()).count(text) == len(text)
    assert max(map(len, online.renderer.given)) <= PIECE_CHARS
    with pytest.raises(ValueError, match="too long"):
        await online.count(text)


async def test_a_short_prompt_is_counted_while_a_long_one_is() -> None:
    online, turns = FakeOnlineRenderer(FakeRenderer(limit=10)), asyncio.Lock()
    long = asyncio.create_task(without_a_limit(online, turns).count("a" * PIECE_CHARS * 20))
    short = asyncio.create_task(without_a_limit(online, turns).count("b"))
    online.renderer.until.set()
    assert await short == 1 and not long.done()
    assert await long == PIECE_CHARS * 20


async def test_a_count_that_is_given_up_reads_no_further() -> None:
    online, turns = FakeOnlineRenderer(FakeRenderer(limit=10)), asyncio.Lock()
    counting = asyncio.create_task(without_a_limit(online, turns).count("a" * PIECE_CHARS * 20))
    await asyncio.sleep(0)
    counting.cancel()
    online.renderer.until.set()
    with pytest.raises(asyncio.CancelledError):
        await counting
    assert online.renderer.given == [] and not turns.locked()


def asked(content: object, **options: object) -> EngineRequest:
    return EngineRequest("r", "m", ({"role": "user", "content": content},), 9, False, "s", options)


async def test_a_short_prompt_needs_no_thread_and_any_other_does_not_stand_in_the_event_loop() -> None:
    from models.vllm.insides import render_short_prompts_at_once

    online = SimpleNamespace(renderer=SimpleNamespace(_executor=ThreadPoolExecutor(1)))
    render_short_prompts_at_once(SimpleNamespace(online_renderer=online))
    threads, here = online.renderer._executor, threading.get_ident()
    loop = asyncio.get_running_loop()

    async def thread_of(request: EngineRequest) -> int:
        note_length(request)
        return await loop.run_in_executor(threads, threading.get_ident)

    assert await asyncio.create_task(thread_of(asked("hi"))) == here
    others = [
        asked("a" * SHORT_CHARS + "b"),
        asked([{"type": "text", "text": "hi"}]),
        asked("hi", tools=[{}]),
    ]
    thought = {"role": "assistant", "content": "", "reasoning_content": "a" * 10**6}
    others.append(replace(asked("hi"), messages=(thought,)))
    for other in [*others, asked("hi", response_format={"type": "json_object"})]:
        assert await asyncio.create_task(thread_of(other)) != here

    note_length(asked("hi"))
    with pytest.raises(ZeroDivisionError):
        await loop.run_in_executor(threads, divmod, 1, 0)
    threads.shutdown()


async def test_what_is_no_text_is_left_to_the_engine() -> None:
    @dataclass
    class OfMedia(FakeRenderer):
        async def tokenize_prompt_async(self, prompt: dict[str, Any], params: FakeParams) -> dict[str, Any]:
            assert params.max_total_tokens is None
            self.given.append("as it is")
            return prompt

    online = FakeOnlineRenderer(OfMedia(limit=10))
    renderer = without_a_limit(online, asyncio.Lock()).renderer
    for prompt in ({"prompt_token_ids": [1, 2]}, {"prompt": "<image>", "multi_modal_data": {"image": 1}}):
        assert await renderer.tokenize_prompt_async(copy.copy(prompt), FakeParams(1)) == prompt
    assert online.renderer.given == ["as it is"] * 2
