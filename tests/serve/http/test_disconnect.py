"""A client's leaving becomes `ClientGone` in the work for it, and nothing else does."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message

from serve.http.replies import ClientGone, cancelled_when_client_leaves


class Wire:
    """A fake connection: what the test puts in is what the server receives."""

    def __init__(self) -> None:
        self._messages: asyncio.Queue[Message] = asyncio.Queue()

    def leave(self) -> None:
        self._messages.put_nowait({"type": "http.disconnect"})

    def say(self) -> None:
        self._messages.put_nowait({"type": "http.request", "body": b"late", "more_body": False})

    async def receive(self) -> Message:
        return await self._messages.get()


async def nobody_else_runs() -> bool:
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_client_that_leaves_stops_the_work() -> None:
    wire, cleaned = Wire(), False
    with pytest.raises(ClientGone):
        async with cancelled_when_client_leaves(wire.receive):
            wire.leave()
            try:
                await asyncio.Event().wait()
            finally:
                cleaned = True
    assert cleaned
    assert await nobody_else_runs()


async def test_work_after_a_client_has_left_is_not_cancelled_by_it() -> None:
    wire = Wire()
    with pytest.raises(ClientGone):
        async with cancelled_when_client_leaves(wire.receive):
            wire.leave()
            await asyncio.Event().wait()
    task = asyncio.current_task()
    assert task is not None and task.cancelling() == 0
    async with asyncio.timeout(60):
        await asyncio.sleep(0)


async def test_work_that_ends_first_is_not_disturbed_by_the_leaving() -> None:
    wire = Wire()
    async with cancelled_when_client_leaves(wire.receive):
        await asyncio.sleep(0)
    wire.leave()
    assert await nobody_else_runs()


async def test_a_client_that_leaves_in_the_last_moment_is_too_late() -> None:
    wire = Wire()
    async with cancelled_when_client_leaves(wire.receive):
        await asyncio.sleep(0)
        wire.leave()
    assert await nobody_else_runs()


async def test_what_the_work_raises_passes_through() -> None:
    wire = Wire()
    with pytest.raises(ValueError, match="mine"):
        async with cancelled_when_client_leaves(wire.receive):
            await asyncio.sleep(0)
            raise ValueError("mine")
    assert await nobody_else_runs()


async def test_more_of_the_body_is_no_leaving() -> None:
    wire = Wire()
    with pytest.raises(ClientGone):
        async with cancelled_when_client_leaves(wire.receive):
            wire.say()
            wire.say()
            for _ in range(5):
                await asyncio.sleep(0)
            wire.leave()
            await asyncio.Event().wait()


async def working(wire: Wire, started: asyncio.Event) -> None:
    async with cancelled_when_client_leaves(wire.receive):
        started.set()
        await asyncio.Event().wait()


async def test_another_cancellation_stays_one() -> None:
    wire, started = Wire(), asyncio.Event()
    work = asyncio.create_task(working(wire, started))
    await started.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert await nobody_else_runs()


async def test_a_cancellation_wins_over_a_client_that_leaves_at_the_same_time() -> None:
    wire, started = Wire(), asyncio.Event()
    work = asyncio.create_task(working(wire, started))
    await started.wait()
    wire.leave()
    await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert await nobody_else_runs()


async def test_work_that_turns_the_cancellation_into_an_error_of_its_own_is_heard() -> None:
    wire = Wire()
    with pytest.raises(ValueError, match="while cleaning"):
        async with cancelled_when_client_leaves(wire.receive):
            wire.leave()
            try:
                await asyncio.Event().wait()
            finally:
                raise ValueError("while cleaning")
