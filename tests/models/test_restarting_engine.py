"""An engine that dies is started again: who was there is told, who comes waits, and what cannot start is given up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest

from models.engine import EngineChunk, EngineFault, EngineRequest, TokenUsage
from models.engine_kinds import RestartingEngine

REQUEST = EngineRequest("r", "m", ({"role": "user", "content": "hi"},), 4, False, "salt", {})


class FakeMortalEngine:
    """A fake: it answers with its name, or fails once it is dead."""

    places = 1
    prompt_making = None
    cache_tokens = None

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.dead = False
        self.hangs = asyncio.Event()
        self.stopped = False

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        if request.stream:
            await self.hangs.wait()
        if self.dead:
            yield EngineFault("failed", "the engine failed while it worked on this request")
            return
        yield EngineChunk(self.name, TokenUsage(), finished=True)

    async def count_tokens(
        self, request: EngineRequest, *, beyond_context: bool = False
    ) -> int | EngineFault:
        return len(self.name)

    async def stop(self) -> None:
        self.stopped = True

    def die(self) -> None:
        self.dead = True
        self.hangs.set()


class FakeStarter:
    """A fake: starts are held until `go`; `failing` makes them raise."""

    def __init__(self) -> None:
        self.started: list[FakeMortalEngine] = []
        self.go = asyncio.Event()
        self.begun = asyncio.Event()
        self.failing = False
        self.given_up = asyncio.Event()

    async def start(self) -> FakeMortalEngine:
        self.begun.set()
        await self.go.wait()
        if self.failing:
            raise RuntimeError("no memory")
        self.started.append(FakeMortalEngine(b"next"))
        return self.started[-1]


@asynccontextmanager
async def kept_up(first: FakeMortalEngine, starter: FakeStarter) -> AsyncIterator[RestartingEngine]:
    chat = RestartingEngine(first, starter.start, give_up=starter.given_up.set)
    keeping = asyncio.create_task(chat.supervise())
    try:
        async with asyncio.timeout(10):
            yield chat
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def answer(chat: RestartingEngine, *, stream: bool = False) -> EngineChunk | EngineFault:
    request = EngineRequest("r", "m", REQUEST.messages, 4, stream, "salt", {})
    async for item in chat.generate(request):
        return item
    raise AssertionError("no answer")


async def test_a_request_that_comes_after_the_death_waits_for_the_next_engine() -> None:
    first, starter = FakeMortalEngine(b"first"), FakeStarter()
    async with kept_up(first, starter) as chat:
        first.die()
        # Before the death is noticed, and after.
        early = asyncio.create_task(answer(chat))
        await starter.begun.wait()
        late = asyncio.create_task(answer(chat))
        counting = asyncio.create_task(chat.count_tokens(REQUEST))
        await asyncio.sleep(0)
        assert not early.done() and not late.done() and not counting.done() and not chat.is_up
        starter.go.set()
        for waited in (await early, await late):
            assert isinstance(waited, EngineChunk) and waited.data == b"next"
        assert await counting == len(b"next") and chat.is_up


async def test_a_request_that_was_running_is_told_before_the_next_engine_is_up() -> None:
    first, starter = FakeMortalEngine(b"first"), FakeStarter()
    async with kept_up(first, starter) as chat:
        running = asyncio.create_task(answer(chat, stream=True))
        await asyncio.sleep(0)
        first.die()
        told = await running
        assert isinstance(told, EngineFault) and told.kind == "failed"
        assert not starter.started


async def test_an_engine_that_dies_again_is_started_again() -> None:
    first, starter = FakeMortalEngine(b"first"), FakeStarter()
    starter.go.set()
    async with kept_up(first, starter) as chat:
        first.die()
        await answer(chat)
        starter.started[0].die()
        await answer(chat)
        assert len(starter.started) == 2
        assert first.stopped and starter.started[0].stopped and not starter.started[1].stopped


async def test_an_engine_that_cannot_be_started_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    first, starter = FakeMortalEngine(b"first"), FakeStarter()
    starter.failing = True
    starter.go.set()
    async with kept_up(first, starter):
        first.die()
        await starter.given_up.wait()
    assert "no memory" in caplog.text


async def test_an_engine_that_cannot_be_started_again_is_given_up_without_waiting_for_its_end() -> None:
    first, given_up = FakeMortalEngine(b"first"), asyncio.Event()
    first.die()
    keeping = asyncio.create_task(RestartingEngine(first, None, give_up=given_up.set).supervise())
    async with asyncio.timeout(10):
        await given_up.wait()
        await keeping
    assert not first.stopped
