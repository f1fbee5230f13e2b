"""Writes of originals leave a database half of its time."""

from __future__ import annotations

import asyncio
import itertools

from serve.originals.originals import Turns


async def test_after_a_write_comes_as_long_a_pause_and_then_the_next_in_line() -> None:
    turns, begun = Turns(), []
    loop = asyncio.get_running_loop()

    async def write(name: str) -> None:
        async with turns.turn():
            begun.append((name, loop.time()))
            await asyncio.sleep(0.03)

    await asyncio.gather(*(write(name) for name in "abc"))
    assert [name for name, _ in begun] == ["a", "b", "c"]
    assert all(later - earlier >= 0.055 for (_, earlier), (_, later) in itertools.pairwise(begun))


async def test_a_write_that_fails_or_is_given_up_ends_its_turn() -> None:
    turns = Turns()
    for error in (ValueError, asyncio.CancelledError):
        try:
            async with turns.turn():
                raise error
        except (ValueError, asyncio.CancelledError):
            pass
    entered = asyncio.Event()

    async def hang() -> None:
        async with turns.turn():
            entered.set()
            await asyncio.Event().wait()

    hanging, waiting = asyncio.create_task(hang()), asyncio.create_task(hang())
    await entered.wait()
    waiting.cancel()
    hanging.cancel()
    await asyncio.gather(hanging, waiting, return_exceptions=True)
    async with asyncio.timeout(60), turns.turn():
        pass
