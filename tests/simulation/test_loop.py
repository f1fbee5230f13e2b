"""The simulated loop by itself: asyncio's own parts on it, the seed's choice, and processes that pause and die."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.simulation.loop import Place, SimulatedLoop, StuckError


def new_loop(seed: int = 1) -> SimulatedLoop:
    return SimulatedLoop(random.Random(seed))


def order_of_ten(seed: int) -> list[int]:
    order: list[int] = []

    async def note(number: int) -> None:
        order.append(number)

    async def all_at_once() -> None:
        await asyncio.gather(*(note(number) for number in range(10)))

    loop = new_loop(seed)
    loop.run_until_complete(all_at_once())
    loop.close()
    return order


def test_a_seed_always_draws_the_same_order_and_another_seed_another() -> None:
    assert order_of_ten(1) == order_of_ten(1)
    assert sorted(order_of_ten(1)) == list(range(10))
    assert len({tuple(order_of_ten(seed)) for seed in range(20)}) == 20


def test_an_hour_passes_at_once_and_a_timeout_ends_what_takes_longer() -> None:
    async def wait() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    loop = new_loop()
    assert loop.run_until_complete(wait()) == 3600
    loop.close()


def test_what_waits_for_nothing_that_will_happen_is_an_error() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    loop = new_loop()
    with pytest.raises(StuckError):
        loop.run_until_complete(wait())
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def test_a_dead_place_runs_no_further_and_a_paused_one_goes_on_where_it_was() -> None:
    loop = new_loop()
    dead, paused = Place("dead"), Place("paused")
    seen: list[tuple[str, float]] = []

    async def tick(name: str) -> None:
        while len(seen) < 8:
            await asyncio.sleep(1)
            seen.append((name, loop.time()))

    async def watch() -> None:
        tasks = [loop.create_task(tick(place.name), context=place.context()) for place in (dead, paused)]
        await asyncio.sleep(2.5)
        dead.is_alive = False
        paused.is_paused = True
        await asyncio.sleep(10)
        loop.resume(paused)
        await tasks[1]
        loop.resume(dead)
        await asyncio.sleep(10)
        assert not tasks[0].done()
        loop.revive(dead)
        await tasks[0]

    loop.run_until_complete(watch())
    loop.close()
    assert {name for name, _ in seen[:4]} == {"dead", "paused"}
    # Not one step of either while it could not run; what had become due runs when the pause ends.
    assert seen[4:7] == [("paused", 12.5), ("paused", 13.5), ("paused", 14.5)]
