"""An engine whose places projects share; the engine behind it is a fake that goes on when the test says so."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace

from models.engine import EngineChunk, EngineFault, EngineRequest
from models.errors import EngineFailed
from models.fake_engine import FakeEngine
from serve.fairness.generation import FairGeneration
from serve.fairness.places import Shares

REQUEST = EngineRequest("id", "model", ({"role": "user", "content": "hi"},), 4, True, "salt", project_id="a")


async def run(fair: FairGeneration, request: EngineRequest) -> list[EngineChunk | EngineFault]:
    async with aclosing(fair.generate(request)) as items:
        return [item async for item in items]


async def others_run() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def fair_over(engine: FakeEngine, *, places: int = 1, share: float = 1) -> FairGeneration:
    return FairGeneration(engine.generate, places=places, shares=Shares(share, share))


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
