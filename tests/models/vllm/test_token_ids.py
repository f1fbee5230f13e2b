"""Token ids as a real engine counts them: hashed with each chunk, told at the end, and found right by a recount."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import models.embedded
from models.counted_tokens import TokenIds
from models.engine import EngineChunk, EngineRequest
from models.recounting import Vocabulary, read_reply, recounted

if TYPE_CHECKING:
    from models.vllm.engine import VLLMEngine

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    # vLLM's own, and those of what it imports.
    pytest.mark.filterwarnings("ignore"),
]
KNOWN = Vocabulary(Path(models.embedded.__file__).parent / "tokenizer")
MESSAGES = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 7 + 8?"})
MANY = {"n": 3, "temperature": 1.0, "seed": 5}


def asked(
    *, stream: bool = False, max_tokens: int = 24, messages: Sequence[Any] = MESSAGES, **options: Any
) -> EngineRequest:
    given = {"temperature": 0.0, **options}
    id_ = f"t{time.monotonic_ns()}"
    return EngineRequest(id_, "m", tuple(messages), max_tokens, stream, "salt", given, tells_tokens=True)


async def chunks_of(engine: VLLMEngine, request: EngineRequest) -> list[EngineChunk]:
    found = [chunk async for chunk in engine.generate(request)]
    assert all(isinstance(chunk, EngineChunk) for chunk in found), found
    return found  # type: ignore[return-value]


def first_tokens(told: TokenIds, counts: Sequence[int]) -> TokenIds:
    cut = [ids[:count] for ids, count in zip(told.replies, counts, strict=True)]
    return replace(told, replies=cut)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("options", [{}, MANY, {"ignore_eos": True}, {"stop": ["e", "a"]}])
async def test_a_recount_finds_a_reply_right(
    engine: VLLMEngine, options: dict[str, Any], stream: bool
) -> None:
    request = asked(stream=stream, **options)
    chunks = await chunks_of(engine, request)
    last = chunks[-1]
    told = last.token_ids
    assert told is not None and last.tokens_sha256 == told.sha256()
    assert last.usage.prompt_tokens == len(told.prompts[0])
    assert last.usage.completion_tokens == sum(map(len, told.replies))
    assert len(told.replies) == options.get("n", 1)
    usage = {name: getattr(last.usage, name) for name in ("prompt_tokens", "completion_tokens")}
    service = {"metering": {}, "tokens": told.fields()}
    text = b"".join(chunk.data for chunk in chunks).decode()
    reply = {**read_reply(text), "usage": usage, "service": service}
    found = recounted({"messages": MESSAGES, **options}, reply, KNOWN)
    unknown = {one.what for one in found if one.fits is None}
    assert [one for one in found if one.fits is False] == [] and unknown == {"promised record"}, found


async def test_each_chunk_of_a_stream_has_the_hash_of_what_it_counts(engine: VLLMEngine) -> None:
    chunks = await chunks_of(engine, asked(stream=True, ignore_eos=True))
    told = chunks[-1].token_ids
    assert told is not None
    for chunk in chunks:
        so_far = replace(told, prompts=told.prompts if chunk.usage.prompt_tokens else [[]])
        so_far = first_tokens(so_far, [chunk.usage.completion_tokens])
        assert chunk.tokens_sha256 == so_far.sha256(), chunk.usage


async def test_a_stream_that_is_left_has_the_hash_of_what_was_generated(engine: VLLMEngine) -> None:
    request = asked(stream=True, max_tokens=400, ignore_eos=True)
    whole = (await chunks_of(engine, replace(request, request_id="whole", max_tokens=60)))[-1].token_ids
    assert whole is not None
    seen: list[Any] = []
    async with aclosing(engine.generate(request)) as chunks:
        async for chunk in chunks:
            seen.append(chunk)
            if chunk.usage.completion_tokens >= 5:
                break
    last = seen[-1]
    assert last.tokens_sha256 == first_tokens(whole, [last.usage.completion_tokens]).sha256()


async def test_a_paused_reply_has_the_tokens_and_the_hash_that_it_would_have(engine: VLLMEngine) -> None:
    request = asked(stream=True, max_tokens=60, ignore_eos=True)
    straight = (await chunks_of(engine, request))[-1]
    again, seen = replace(request, request_id="again"), []
    async with aclosing(engine.generate(again)) as chunks:
        async for chunk in chunks:
            seen.append(chunk)
            if isinstance(chunk, EngineChunk) and chunk.usage.completion_tokens in (5, 6, 7, 8):
                engine.pause(again, True)
                await asyncio.sleep(0)
                engine.pause(again, False)
    assert straight.token_ids is not None and seen[-1].token_ids is not None
    assert seen[-1].token_ids.fields() == straight.token_ids.fields()
    assert seen[-1].tokens_sha256 == straight.tokens_sha256


def completion(*prompts: Any, max_tokens: int = 4, **form_options: Any) -> EngineRequest:
    options = {"temperature": 0.0}
    return EngineRequest(
        f"c{time.monotonic_ns()}",
        "m",
        (),
        max_tokens,
        False,
        "salt",
        options,
        form="completion",
        prompts=prompts,
        form_options=form_options,
        tells_tokens=True,
    )


@pytest.mark.parametrize("form", ["completion", "message", "response"])
@pytest.mark.parametrize("stream", [False, True])
async def test_other_forms_are_hashed_too(engine: VLLMEngine, form: Any, stream: bool) -> None:
    request = completion("One", "Two words") if form == "completion" else replace(asked(), form=form)
    last = (await chunks_of(engine, replace(request, stream=stream)))[-1]
    told = last.token_ids
    assert told is not None and last.tokens_sha256 == told.sha256()
    assert last.usage.completion_tokens == sum(map(len, told.replies)) > 0
    assert last.usage.prompt_tokens == sum(map(len, told.prompts))
    assert told.source.tokenizer_sha256 == KNOWN.sha256
    assert (told.source.template_sha256 is None) == (form == "completion")


async def test_an_echo_alone_counts_no_reply(engine: VLLMEngine) -> None:
    last = (await chunks_of(engine, completion("One two", max_tokens=0, echo=True)))[-1]
    assert last.token_ids is not None and list(last.token_ids.replies) == []
    assert last.usage.completion_tokens == 0 and last.tokens_sha256 == last.token_ids.sha256()
