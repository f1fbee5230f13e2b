"""Chats whose engine dies go on on another, from the tokens that were delivered."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest

from models.engine import EngineChunk, EngineRequest
from models.errors import EngineDied, EngineFailed, EngineUnavailable
from models.fake_engine import FakeEngine
from models.surviving import may_survive, surviving

TEXT = 'Die Eule 🦉 sagt: „created“ "created": 7 "finish_reason":"stop" und schläft.'
WORDS = len(TEXT.split())
MESSAGES = ({"role": "user", "content": "Who?"},)


def asked(*, stream: bool = True, **options: Any) -> EngineRequest:
    return EngineRequest("r", "m", MESSAGES, 64, stream, "salt", {"temperature": 0, **options})


class Engines:
    """One after the other; each later one tells another time of creation."""

    def __init__(self, *engines: FakeEngine) -> None:
        self._engines = list(engines)
        self.waits: list[float | None] = []

    async def generate(
        self, request: EngineRequest, wait_s: float | None
    ) -> AsyncGenerator[EngineChunk, None]:
        self.waits.append(wait_s)
        later = len(self.waits)
        async for chunk in self._engines.pop(0).generate(request):
            yield replace(chunk, data=chunk.data.replace(b'"created": 1700', b'"created": %d700' % later))


def dying(after: int, **knobs: Any) -> FakeEngine:
    # It dies before its first token where it dies after none.
    return FakeEngine(text=TEXT, fails_with=EngineDied("died"), fails_after=after, **knobs)


async def reply_of(engines: Engines, request: EngineRequest, times: int = 2) -> list[EngineChunk]:
    return [chunk async for chunk in surviving(engines.generate, request, times=times, wait_s=20)]


def text_of(chunks: list[EngineChunk], *, stream: bool) -> str:
    data = b"".join(chunk.data for chunk in chunks)
    if not stream:
        return str(json.loads(data)["choices"][0]["message"]["content"])
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in data.decode().split("\n\n") if line]
    assert [delta.get("role") for delta in deltas] == ["assistant"] + [None] * (len(deltas) - 1)
    return "".join(delta.get("content", "") for delta in deltas)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("after", range(WORDS + 1))
async def test_a_reply_is_the_same_wherever_its_engine_died(after: int, stream: bool) -> None:
    request = asked(stream=stream)
    alone = await reply_of(Engines(FakeEngine(text=TEXT)), request)
    chunks = await reply_of(
        Engines(dying(after), FakeEngine(text=TEXT, cached_tokens=3 if after else 0)), request
    )
    assert text_of(chunks, stream=stream) == text_of(alone, stream=stream) == TEXT
    last = chunks[-1]
    assert last.finished and [chunk.finished for chunk in chunks].count(True) == 1
    assert (last.usage, last.tokens_sha256) == (alone[-1].usage, alone[-1].tokens_sha256)
    totals = [chunk.usage.total_tokens for chunk in chunks]
    assert totals == sorted(totals)
    assert not any(chunk.reply for chunk in chunks)


async def test_a_stream_tells_one_time_of_creation_and_leaves_texts_as_they_are() -> None:
    chunks = await reply_of(Engines(dying(3), dying(9), FakeEngine(text=TEXT)), asked())
    events = [line[6:] for line in b"".join(c.data for c in chunks).decode().split("\n\n") if line]
    assert {json.loads(event)["created"] for event in events} == {1_700_000_000}
    assert text_of(chunks, stream=True) == TEXT


async def test_a_stop_string_and_the_token_limit_are_those_of_the_whole_reply() -> None:
    for request in (asked(stop=["sagt: „cre"]), replace(asked(), max_tokens=5)):
        alone = await reply_of(Engines(FakeEngine(text=TEXT)), request)
        chunks = await reply_of(Engines(dying(4), FakeEngine(text=TEXT)), request)
        assert text_of(chunks, stream=True) == text_of(alone, stream=True) != TEXT
        assert chunks[-1].usage == alone[-1].usage


async def test_a_chat_that_kills_its_engines_ends_after_as_many_as_are_allowed() -> None:
    engines = Engines(*[dying(2) for _ in range(5)])
    with pytest.raises(EngineDied):
        await reply_of(engines, asked(), times=2)
    assert len(engines.waits) == 3
    assert engines.waits[0] is None and all(wait and wait <= 20 for wait in engines.waits[1:])


async def test_one_that_is_being_replaced_is_asked_again_and_where_none_comes_back_the_death_is_told() -> (
    None
):
    starting = FakeEngine(fails_with=EngineUnavailable("replaced", retry_after_s=1))
    chunks = await reply_of(Engines(dying(2), starting, FakeEngine(text=TEXT)), asked())
    assert text_of(chunks, stream=True) == TEXT
    with pytest.raises(EngineDied):
        async for _ in surviving(Engines(dying(2), starting).generate, asked(), times=2, wait_s=0):
            pass


async def test_an_engine_that_failed_and_lives_is_not_asked_again() -> None:
    engines = Engines(FakeEngine(fails_with=EngineFailed("broken")), FakeEngine())
    with pytest.raises(EngineFailed):
        await reply_of(engines, asked())
    assert len(engines.waits) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"n": 2},
        {"logprobs": True},
        {"response_format": {"type": "json_object"}},
        {"guided_regex": "a"},
        {"tools": [{}]},
        {"seed": 1, "temperature": 1},
        {"presence_penalty": 0.5},
        {"frequency_penalty": 0.5},
    ],
)
async def test_what_cannot_go_on_token_for_token_ends_with_its_engine(options: dict[str, Any]) -> None:
    engines = Engines(dying(2), FakeEngine(text=TEXT))
    with pytest.raises(EngineDied):
        await reply_of(engines, asked(**options))
    assert len(engines.waits) == 1


async def test_a_stream_whose_tokens_are_not_told_ends_with_its_engine_and_a_plain_reply_begins_again() -> (
    None
):
    async def untold(request: EngineRequest, wait_s: float | None) -> AsyncGenerator[EngineChunk, None]:
        async for chunk in engines.generate(request, wait_s):
            yield replace(chunk, reply=())

    engines = Engines(dying(2), FakeEngine(text=TEXT))
    with pytest.raises(EngineDied):
        [chunk async for chunk in surviving(untold, asked(), times=2, wait_s=20)]
    engines = Engines(dying(2), FakeEngine(text=TEXT))
    chunks = [chunk async for chunk in surviving(untold, asked(stream=False), times=2, wait_s=20)]
    assert text_of(chunks, stream=False) == TEXT


def test_a_seed_without_temperature_changes_nothing() -> None:
    assert may_survive(asked(seed=5))
