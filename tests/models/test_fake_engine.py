"""The fake keeps the engine protocol, so what passes against it fails for no reason of its own."""

import asyncio
import json
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.engine import EngineChunk, EngineRequest
from models.errors import EngineFailed, EngineRejected, EngineUnavailable
from models.fake_engine import Aborted, FakeEngine, prompt_tokens


def request(*, stream: bool = True, max_tokens: int = 100, **options: Any) -> EngineRequest:
    return EngineRequest(
        request_id="r1",
        model_id="m1",
        messages=({"role": "user", "content": "two words"},),
        max_tokens=max_tokens,
        stream=stream,
        cache_salt="salt",
        options=options,
    )


async def collect(engine: FakeEngine, wanted: EngineRequest) -> list[EngineChunk]:
    return [chunk async for chunk in engine.generate(wanted)]


def events(chunks: list[EngineChunk]) -> list[dict[str, Any]]:
    lines = b"".join(chunk.data for chunk in chunks).split(b"\n\n")
    assert lines.pop() == b""
    return [json.loads(line.removeprefix(b"data: ")) for line in lines]


def said(chunks: list[EngineChunk], index: int = 0) -> str:
    choices = [choice for event in events(chunks) for choice in event["choices"]]
    return "".join(c["delta"].get("content", "") for c in choices if c["index"] == index)


async def test_a_stream_has_openai_chunks_and_growing_usage_and_one_finished_chunk() -> None:
    chunks = await collect(FakeEngine(text="a b c"), request())
    first, *_, last = events(chunks)
    assert set(first) == {"id", "object", "created", "model", "choices"}
    assert first["object"] == "chat.completion.chunk"
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "a"}
    assert last["choices"] == [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}]
    assert said(chunks) == "a b c"
    assert [chunk.usage.completion_tokens for chunk in chunks] == [0, 1, 2, 3, 3]
    assert {chunk.usage.prompt_tokens for chunk in chunks} == {3}
    assert [chunk.finished for chunk in chunks] == [False, False, False, False, True]


async def test_a_json_reply_comes_whole_in_the_last_chunk() -> None:
    *progress, last = await collect(FakeEngine(text="a b"), request(stream=False, n=2))
    assert all(chunk.data == b"" for chunk in progress)
    reply = json.loads(last.data)
    assert reply["object"] == "chat.completion"
    assert "usage" not in reply
    assert [choice["index"] for choice in reply["choices"]] == [0, 1]
    assert reply["choices"][1]["message"]["content"] == "a b"
    assert last.usage.completion_tokens == 4


@pytest.mark.parametrize(
    ("options", "max_tokens", "text", "reason", "tokens"),
    [
        ({}, 2, "a b", "length", 2),
        ({}, 4, "a b c d", "stop", 4),
        ({"ignore_eos": True}, 6, "a b c d a b", "length", 6),
        ({"min_tokens": 5}, 9, "a b c d a", "stop", 5),
        ({"stop": ["c"]}, 9, "a b ", "stop", 3),
        ({"stop": ["b c"]}, 9, "a b", "stop", 3),
    ],
)
async def test_limits_and_stop_strings_end_the_text(
    options: dict[str, Any], max_tokens: int, text: str, reason: str, tokens: int
) -> None:
    chunks = await collect(FakeEngine(text="a b c d"), request(max_tokens=max_tokens, **options))
    assert said(chunks) == text
    assert events(chunks)[-1]["choices"][0]["finish_reason"] == reason
    assert chunks[-1].usage.completion_tokens == tokens


async def test_the_same_request_gets_the_same_bytes() -> None:
    engine = FakeEngine()
    assert await collect(engine, request(n=3)) == await collect(engine, request(n=3))


async def test_it_fails_before_the_first_chunk_or_after_some_tokens_and_counts_neither_as_an_abort() -> None:
    before = FakeEngine(fails_with=EngineUnavailable("busy", retry_after_s=2))
    with pytest.raises(EngineUnavailable):
        await collect(before, request())
    after = FakeEngine(fails_with=EngineFailed("died"), fails_after=2)
    got: list[EngineChunk] = []
    with pytest.raises(EngineFailed):
        async for chunk in after.generate(request()):
            got.append(chunk)
    assert [chunk.usage.completion_tokens for chunk in got] == [0, 1, 2]
    assert before.aborted == after.aborted == []


async def test_a_closed_iterator_is_recorded_with_the_tokens_it_had() -> None:
    engine = FakeEngine()
    async with aclosing(engine.generate(request())) as chunks:
        async for chunk in chunks:
            if chunk.usage.completion_tokens == 3:
                break
    assert engine.aborted == [Aborted("r1", 3)]


async def test_a_finished_request_is_not_recorded_as_aborted() -> None:
    engine = FakeEngine()
    await collect(engine, request())
    assert engine.aborted == []
    assert [each.request_id for each in engine.requests] == ["r1"]


async def test_an_engine_that_never_answers_waits_until_it_is_cancelled() -> None:
    engine = FakeEngine(answers=False)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await collect(engine, request())
    assert engine.aborted == [Aborted("r1", 0)]


async def test_delays_go_through_the_given_sleep() -> None:
    slept: list[float] = []

    async def sleep(delay_s: float) -> None:
        slept.append(delay_s)

    await collect(FakeEngine(text="a b c", first_token_s=5, token_s=2, sleep=sleep), request())
    assert slept == [5, 2, 2]


async def test_garbage_replaces_what_it_would_have_said() -> None:
    chunks = await collect(FakeEngine(garbage=b"\xff<html>"), request(stream=False))
    assert chunks[-1].data == b"\xff<html>"


async def test_readiness_is_what_it_is_told() -> None:
    assert await FakeEngine().ready()
    assert not await FakeEngine(is_ready=False).ready()


texts = st.text(max_size=20)
contents = st.one_of(
    texts, st.lists(texts.map(lambda text: {"type": "text", "text": text}), min_size=1, max_size=3)
)


@given(st.lists(contents, min_size=1, max_size=4))
def test_its_prompts_have_no_more_tokens_than_it_says_beforehand(found: list[Any]) -> None:
    messages = tuple({"role": "user", "content": content} for content in found)
    request = EngineRequest("id", "model", messages, 4, False, "salt")
    bound = FakeEngine().prompt_bound()
    assert bound is not None
    assert prompt_tokens(request) <= (bound.of(request) or 0)


async def test_a_prompt_over_the_context_is_refused_and_counted_only_where_that_is_asked() -> None:
    engine, wanted = FakeEngine(context_length=100), request(max_tokens=98)
    with pytest.raises(EngineRejected):
        await engine.count_tokens(wanted)
    assert await engine.count_tokens(wanted, beyond_context=True) == prompt_tokens(wanted) == 3
    assert await engine.count_tokens(request(max_tokens=97)) == 3
