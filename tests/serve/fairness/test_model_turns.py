"""Turns of models that share a GPU: when one ends, who is next, and what becomes of requests that wait or run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

import pytest

from models.engine import EngineChunk, EngineRequest
from models.fake_engine import FakeEngine, FakeReplicaEngine
from serve.fairness.engine_turns import EngineTurns, start_one_after_another
from serve.fairness.model_turns import ModelTurns, Swap, TurnTerms
from tests.serve.fairness.model_schedules import simulate

TERMS = TurnTerms(min_stay_s=10, longest_wait_s=60, finish_s=5)
REQUEST = EngineRequest("id", "a", ({"role": "user", "content": "hi"},), 4, True, "salt")


def turns(*models: str, terms: TurnTerms = TERMS) -> ModelTurns:
    """The first is awake since 100."""
    return ModelTurns(models, terms, awake=models[0], now=100)


def test_a_model_that_nobody_asks_makes_way_when_it_has_stayed_long_enough() -> None:
    here = turns("a", "b")
    assert here.next(100) is None
    here.come("b", 103)
    assert here.next(103) == 110
    assert here.next(110) == Swap("a", "b") and not here.may_run("b")
    here.woke(118)
    assert here.may_run("b") and not here.may_run("a") and here.next(500) is None


def test_one_that_is_asked_stays_until_the_other_has_waited_and_then_what_runs_gets_time_to_end() -> None:
    here = turns("a", "b")
    here.come("a", 100)
    here.begin("a")
    here.come("b", 120)
    assert here.next(120) == 180 and here.may_run("a")
    assert here.next(180) == 185 and not here.may_run("a")
    here.come("a", 181)
    assert here.next(182) == 185
    here.leave("a", has_begun=True)
    assert here.next(183) == Swap("a", "b")


def test_what_has_not_ended_in_time_is_paused_and_waits_for_its_next_turn() -> None:
    here = turns("a", "b")
    here.come("a", 100)
    here.begin("a")
    here.come("b", 100)
    assert here.next(160) == 165 and here.next(165) == Swap("a", "b")
    here.woke(170)
    # Since 165: the model that was paused is next, whoever asks the other.
    here.come("b", 171)
    here.begin("b")
    assert here.next(171) == 225


def test_a_turn_goes_on_where_whoever_waited_for_the_next_one_has_left() -> None:
    here = turns("a", "b")
    here.come("a", 100)
    here.begin("a")
    here.come("b", 100)
    assert here.next(160) == 165
    here.leave("b", has_begun=False)
    assert here.next(161) is None and here.may_run("a")


def test_models_are_woken_in_the_order_in_which_they_began_to_wait() -> None:
    here = turns("a", "b", "c")
    here.come("c", 101)
    here.come("b", 102)
    here.come("c", 103)
    assert here.next(110) == Swap("a", "c")
    here.woke(112)
    here.begin("c")
    here.begin("c")
    # By now the other has waited for long enough, so the turn is no longer than it must be.
    assert here.next(170) == 175


def test_one_that_somebody_waits_for_anew_after_all_had_left_has_lost_its_place_in_line() -> None:
    here = turns("a", "b", "c")
    here.come("b", 101)
    here.come("c", 102)
    here.leave("b", has_begun=False)
    here.come("b", 103)
    assert here.next(110) == Swap("a", "c")


def test_the_background_wakes_a_model_where_nobody_waits_for_an_answer_of_another() -> None:
    here = turns("a", "b")
    here.come("a", 100)
    here.begin("a")
    here.come("b", 100, background=True)
    assert here.next(900) is None
    here.leave("a", has_begun=True)
    assert here.next(900) == Swap("a", "b")
    here.woke(905)
    here.begin("b", background=True)
    # Somebody's request does not wait for the background to end, and that has its time to finish.
    here.come("a", 910)
    assert here.next(910) == 915 and here.next(915) == 920 and here.next(920) == Swap("b", "a")
    here.woke(925)
    here.begin("a")
    # What has begun is owed its next turn like any other.
    assert here.next(925) == 980


def test_a_model_that_somebody_waits_for_goes_before_one_for_the_background() -> None:
    here = turns("a", "b", "c")
    here.come("c", 101, background=True)
    here.come("b", 102)
    assert here.next(110) == Swap("a", "b")


def test_in_no_schedule_does_a_model_starve_or_a_turn_end_too_early_and_two_are_never_awake() -> None:
    swaps, nearest = simulate(30, seed=1)
    # Some wait nearly as long as they may, so the bound is no looser than it must be.
    assert swaps > 300 and nearest > 0.8


@dataclass(kw_only=True)
class Engine(FakeReplicaEngine):
    """Notes when it sleeps and wakes; `broken`: it cannot wake up."""

    name: str
    log: list[str] = field(default_factory=list)
    broken: bool = False
    told: list[bool] = field(default_factory=list)

    def pause(self, request: EngineRequest, paused: bool) -> None:
        self.told.append(paused)

    async def sleep(self) -> None:
        self.log.append(f"{self.name} sleeps")
        await super().sleep()

    async def wake(self) -> None:
        self.log.append(f"{self.name} wakes")
        if self.broken:
            raise RuntimeError("no memory is left")
        await super().wake()


@dataclass
class Here:
    turns: EngineTurns
    engines: dict[str, Engine]
    log: list[str]
    given_up: asyncio.Event

    def ask(self, model: str) -> asyncio.Task[EngineChunk]:
        return asyncio.create_task(last_of(self.turns, model))


async def last_of(turns: EngineTurns, model: str) -> EngineChunk:
    async with aclosing(turns.generate(model, REQUEST)) as items:
        *_, last = [item async for item in items]
    assert isinstance(last, EngineChunk)
    return last


@asynccontextmanager
async def sharing(*names: str, finish_s: float = 0.0) -> AsyncIterator[Here]:
    log: list[str] = []

    def start(name: str):  # type: ignore[no-untyped-def]
        async def started() -> Engine:
            log.append(f"{name} starts")
            return Engine(name=name, log=log, engine=FakeEngine())

        return started

    engines = await start_one_after_another({name: start(name) for name in names})
    given_up = asyncio.Event()
    turns = EngineTurns(engines, TurnTerms(0.01, 0.01, finish_s), give_up=given_up.set)
    running = asyncio.create_task(turns.run())
    try:
        async with asyncio.timeout(60):
            yield Here(turns, engines, log, given_up)  # type: ignore[arg-type]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_engines_start_one_after_another_and_the_first_stays_awake() -> None:
    async with sharing("a", "b", "c") as here:
        assert here.log == ["c starts", "c sleeps", "b starts", "b sleeps", "a starts"]
        assert (await here.ask("a")).finished and len(here.log) == 5


async def test_a_request_of_a_model_that_sleeps_is_answered_after_a_swap() -> None:
    async with sharing("a", "b") as here:
        assert (await here.ask("b")).finished
        assert here.log[-2:] == ["a sleeps", "b wakes"]
        assert not here.engines["a"].engine.requests


async def test_a_reply_that_is_paused_goes_on_and_is_whole() -> None:
    async with sharing("a", "b") as here:
        gate = asyncio.Event()
        here.engines["a"].engine.sleep = lambda _: gate.wait()
        paused = here.ask("a")
        assert (await here.ask("b")).finished and not paused.done()
        gate.set()
        last = await paused
        assert last.finished and last.usage.completion_tokens == 4
        assert here.log[-2:] == ["b sleeps", "a wakes"]


async def test_whoever_leaves_before_the_turn_wakes_nobody() -> None:
    async with sharing("a", "b", finish_s=60) as here:
        gate = asyncio.Event()
        here.engines["a"].engine.sleep = lambda _: gate.wait()
        running, waiting = here.ask("a"), here.ask("b")
        for _ in range(10):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        late = here.ask("a")
        gate.set()
        assert (await running).finished and (await late).finished
        assert not here.engines["b"].engine.requests and "b wakes" not in here.log


async def test_an_engine_forgets_a_pause_of_one_that_left_before_its_turn() -> None:
    async with sharing("a", "b", finish_s=60) as here:
        here.engines["a"].engine.sleep = lambda _: asyncio.Event().wait()
        running, waiting = here.ask("a"), here.ask("b")
        for _ in range(10):
            await asyncio.sleep(0)
        here.engines["b"].pause(REQUEST, True)
        for task in (waiting, running):
            task.cancel()
        await asyncio.gather(waiting, running, return_exceptions=True)
        assert here.engines["b"].told == [True, False] and not here.engines["a"].told


async def test_a_swap_that_fails_is_given_up_and_nothing_goes_on() -> None:
    async with sharing("a", "b") as here:
        here.engines["b"].broken = True
        waiting = here.ask("b")
        await here.given_up.wait()
        assert not waiting.done() and not here.engines["b"].engine.requests
        waiting.cancel()


@pytest.mark.parametrize("models", [2, 5])
def test_the_bound_grows_by_a_turn_and_a_swap_with_each_model_more(models: int) -> None:
    bounds = [TERMS.bound_s(number, 8) for number in (models, models + 1)]
    assert bounds[1] - bounds[0] == 10 + 5 + 8
    assert TERMS.bound_s(2, 8) == 60 + 5 + 8
