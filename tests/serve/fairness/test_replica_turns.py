"""Turns of projects at an engine, which goes on when the test says so, and of requests in the background."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest

from models.engine import EngineChunk, EngineFault, EngineRequest
from models.errors import EngineFailed
from models.fake_engine import FakeEngine
from serve.fairness.places import QUIET_S, FairPlaces, QueueFull
from serve.fairness.queue import Claim, Place, claim_of
from serve.fairness.replica_turns import FairGeneration

REQUEST = EngineRequest("id", "model", ({"role": "user", "content": "hi"},), 4, True, "salt", project_id="a")


async def run(fair: FairGeneration, request: EngineRequest) -> list[EngineChunk | EngineFault]:
    async with aclosing(fair.generate(request)) as items:
        return [item async for item in items]


async def others_run() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def fair_over(engine: FakeEngine, *, places: int = 1) -> FairGeneration:
    return FairGeneration(engine.generate, places=places)


async def test_who_waits_has_not_reached_the_engine_and_follows_when_its_turn_comes() -> None:
    gate = asyncio.Event()
    engine = FakeEngine(token_s=1, sleep=lambda _: gate.wait())
    fair = fair_over(engine)
    tasks = [
        asyncio.create_task(run(fair, replace(REQUEST, request_id=str(number), project_id=project)))
        for number, project in enumerate("aaab")
    ]
    await others_run()
    assert [request.request_id for request in engine.requests] == ["0"]
    gate.set()
    for items in await asyncio.gather(*tasks):
        assert isinstance(items[-1], EngineChunk) and items[-1].finished
    assert engine.requests[1].project_id == "b"


async def test_a_request_takes_a_place_for_each_of_its_choices() -> None:
    engine = FakeEngine(answers=False)
    fair = fair_over(engine, places=4)
    requests = [replace(REQUEST, options={"n": 3}), REQUEST, REQUEST]
    tasks = [asyncio.create_task(run(fair, request)) for request in requests]
    await others_run()
    assert len(engine.requests) == 2
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_many_prompts_of_one_request_leave_room_for_others() -> None:
    engine = FakeEngine(answers=False)
    fair = fair_over(engine, places=8)
    many = replace(REQUEST, messages=(), form="completion", prompts=("a",) * 100, options={"n": 2})
    assert (many.sequences, many.prompts_at_once(8), many.places(8)) == (200, 1, 2)
    assert replace(many, prompts=("a",)).places(64) == 2 and many.places(64) == 16
    requests = [many, *[REQUEST] * 7]
    tasks = [asyncio.create_task(run(fair, request)) for request in requests]
    await others_run()
    assert len(engine.requests) == 7
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_client_that_leaves_while_it_waits_never_reaches_the_engine() -> None:
    engine = FakeEngine(answers=False)
    fair = fair_over(engine)
    tasks = [asyncio.create_task(run(fair, REQUEST)) for _ in range(2)]
    await others_run()
    tasks[1].cancel()
    await others_run()
    engine.answers = True
    tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert len(engine.requests) == 1
    assert len(await run(fair, REQUEST)) > 1


async def test_an_engine_that_fails_gives_its_place_back() -> None:
    engine = FakeEngine(fails_with=EngineFailed("broken"))
    fair = fair_over(engine)
    for _ in range(3):
        try:
            await run(fair, REQUEST)
        except EngineFailed:
            continue
        raise AssertionError("the fake did not fail")


async def test_more_choices_than_half_an_engine_are_refused_and_keep_nobody_waiting() -> None:
    engine = FakeEngine()
    refused = await run(fair_over(engine, places=64), replace(REQUEST, options={"n": 33}))
    assert isinstance(refused[0], EngineFault) and (refused[0].kind, refused[0].param) == ("rejected", "n")
    assert not engine.requests
    for places, choices in ((64, 32), (256, 128), (1, 16)):
        items = await run(fair_over(engine, places=places), replace(REQUEST, options={"n": choices}))
        assert isinstance(items[-1], EngineChunk) and items[-1].finished


class CountedTurns:
    """A fake `TurnObserver`: what it was told, in order."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def wait(self) -> None:
        self.told.append("waits")

    def give_up(self) -> None:
        self.told.append("gives up")

    def begin(self, waited_s: float) -> None:
        assert waited_s >= 0
        self.told.append("begins")

    def end(self) -> None:
        self.told.append("ends")


async def test_each_request_is_observed_until_it_ends_or_gives_up() -> None:
    gate, turns = asyncio.Event(), CountedTurns()
    engine = FakeEngine(token_s=1, sleep=lambda _: gate.wait())
    fair = FairGeneration(engine.generate, places=1, observer=turns)
    running = asyncio.create_task(run(fair, REQUEST))
    await others_run()
    waiting = asyncio.create_task(run(fair, REQUEST))
    await others_run()
    assert turns.told == ["waits", "begins", "waits"]
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    gate.set()
    await running
    assert turns.told == ["waits", "begins", "waits", "gives up", "ends"]


def claim(project: str, *, background: bool = False) -> Claim:
    request = EngineRequest("id", "m", (), 10, False, "salt", project_id=project, background=background)
    return claim_of(request, places=1)


async def waiting(places: FairPlaces, asked: Claim) -> asyncio.Task[Place | None]:
    task = asyncio.create_task(places.enter(asked))
    await asyncio.sleep(0)
    return task


async def test_it_waits_until_nobody_else_does_however_long_it_has_waited() -> None:
    places = FairPlaces(lambda: 1)
    held = places.try_enter(claim("a"))
    line = await waiting(places, claim("a", background=True))
    for other in [await waiting(places, claim("a")), await waiting(places, claim("a"))]:
        assert held is not None
        places.leave(held, used_tokens=10)
        held = await other
        assert not line.done()
    assert held is not None
    places.leave(held, used_tokens=10)
    assert await line


async def test_it_is_not_begun_while_another_waits() -> None:
    places = FairPlaces(lambda: 4)
    assert places.try_enter(claim("a"))
    large = await waiting(places, replace(claim("a"), places=4))
    assert not large.done()
    assert not places.try_enter(claim("b", background=True))
    large.cancel()
    await asyncio.gather(large, return_exceptions=True)
    assert places.try_enter(claim("b", background=True))


@pytest.mark.parametrize(("room", "most"), [(4, 1), (64, 2), (256, 8)])
async def test_beside_others_it_has_few_places_and_alone_all_of_them(room: int, most: int) -> None:
    paused: list[Place] = []
    places = FairPlaces(lambda: room, on_pause=paused.append)
    held = places.try_enter(claim("a"))
    assert held is not None
    lines = [claim(str(number), background=True) for number in range(room)]
    assert sum(places.try_enter(line) is not None for line in lines) == most
    places.leave(held, used_tokens=1)
    # The next one may come at any moment.
    assert not places.try_enter(lines[0])
    places._last_seen -= QUIET_S
    assert sum(places.try_enter(claim("z", background=True)) is not None for _ in lines) == room - most
    # All but a few are taken back for whoever is waited for.
    assert places.try_enter(claim("a"))
    assert [place.claim.project_id for place in paused] == ["z:background"]


async def test_in_a_full_queue_it_gives_way_first() -> None:
    places = FairPlaces(lambda: 1, max_waiting=1)
    assert places.try_enter(claim("a"))
    line = await waiting(places, claim("a", background=True))
    other = await waiting(places, claim("a"))
    with pytest.raises(QueueFull):
        await line
    with pytest.raises(QueueFull):
        await places.enter(claim("b", background=True))
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)


async def test_an_engine_is_told_whom_to_pause_and_who_goes_on() -> None:
    engine, told = FakeEngine(answers=False), []
    fair = FairGeneration(
        engine.generate, places=2, pause=lambda request, paused: told.append((request.request_id, paused))
    )
    tasks = {
        name: asyncio.create_task(run(fair, replace(REQUEST, request_id=name, project_id=name[0])))
        for name in ("a1", "a2", "b1")
    }
    await others_run()
    assert len(engine.requests) == 3 and told == [("a2", True)]
    tasks["b1"].cancel()
    await others_run()
    assert told == [("a2", True), ("a2", False)]
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
