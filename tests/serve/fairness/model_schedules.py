"""Simulated schedules of models that share a GPU: `python -m tests.serve.fairness.model_schedules --count 10000`.

The turns are the real ones, on a loop whose clock is a number and which draws what runs next from the seed. In each
schedule requests of two to five models come, in crowds or one by one, some for minutes, and some clients leave. No two
engines may have the GPU at once, no turn may be shorter than the minimum stay, nothing may begin on an engine that
sleeps, none falls asleep for nobody, or before what runs had its time to end, or for the background alone while
somebody waits for its answer; nothing may wait for longer than the bound says, but for the background before it has
begun, and each must end.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Annotated

import typer

from models.engine import EngineChunk, EngineFault, EngineRequest, TokenUsage
from models.fake_engine import FakeReplicaEngine
from serve.fairness.engine_turns import EngineTurns, start_one_after_another
from serve.fairness.model_turns import TurnTerms
from tests.simulation.loop import SimulatedLoop, StuckError

COME_FOR_S = 900.0
# A request works by steps, so that what runs gets on while its engine is awake alone.
STEP_S = 0.5
LONGEST_SLEEP_S, LONGEST_WAKE_S = 4.0, 8.0
ROUNDING_S = 1e-6
LAST = EngineChunk(b"", TokenUsage(1, 1), finished=True)


@dataclass(slots=True)
class Gpu:
    """Who has its memory; `asked`: requests by model that have not ended, and those of them in the foreground."""

    rng: random.Random
    terms: TurnTerms
    asked: dict[str, int]
    in_front: dict[str, int]
    owner: str | None = None
    swaps: int = 0
    engines: dict[str, SimulatedEngine] = field(default_factory=dict)
    # The longest wait, as a part of what it may be.
    nearest: float = 0.0

    @property
    def bound_s(self) -> float:
        return self.terms.bound_s(len(self.asked), LONGEST_SLEEP_S + LONGEST_WAKE_S)

    def waited(self, seconds: float, bound_s: float) -> None:
        self.nearest = max(self.nearest, seconds / bound_s)
        assert seconds <= bound_s + ROUNDING_S, f"waited {seconds:.1f} s, and the bound is {bound_s:.1f} s"


@dataclass(kw_only=True)
class SimulatedEngine(FakeReplicaEngine):
    """Sleeps, wakes and works as the clock goes on."""

    model: str
    gpu: Gpu
    woke_at: float = 0.0
    awake: asyncio.Event = field(default_factory=asyncio.Event)
    # When each of its requests began.
    runs: dict[object, float] = field(default_factory=dict)

    def take_gpu(self) -> None:
        assert self.gpu.owner is None, f"{self.gpu.owner} has the GPU, and {self.model} wakes"
        self.gpu.owner, self.woke_at = self.model, now()
        self.awake.set()

    async def sleep(self) -> None:
        gpu = self.gpu
        assert gpu.owner == self.model
        # Before that they are started.
        if now() > 0:
            stayed = now() - self.woke_at
            assert stayed >= gpu.terms.min_stay_s - ROUNDING_S, f"{self.model} stayed {stayed:.1f} s"
            assert any(number for model, number in gpu.asked.items() if model != self.model), "for nobody"
            begun = any(other.runs for model, other in gpu.engines.items() if model != self.model)
            others = sum(number for model, number in gpu.in_front.items() if model != self.model)
            assert others or begun or not gpu.in_front[self.model], "for the background alone"
            latest = max(self.runs.values(), default=float("-inf"))
            assert now() - latest >= gpu.terms.finish_s - ROUNDING_S, f"{self.model} had no time to finish"
        self.awake.clear()
        await asyncio.sleep(gpu.rng.uniform(0, LONGEST_SLEEP_S) if now() > 0 else 0)
        gpu.owner = None

    async def wake(self) -> None:
        await asyncio.sleep(self.gpu.rng.uniform(0, LONGEST_WAKE_S))
        self.gpu.swaps += 1
        self.take_gpu()

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        assert self.awake.is_set(), f"{self.model} begins a request and sleeps"
        # It may have come when the turn of its model was to end.
        if not request.background:
            self.gpu.waited(now() - float(request.request_id), self.gpu.bound_s + self.gpu.terms.finish_s)
        task = asyncio.current_task()
        self.runs[task] = now()
        try:
            for _ in range(request.max_tokens):
                paused_at = now()
                await self.awake.wait()
                self.gpu.waited(now() - paused_at, self.gpu.bound_s)
                await asyncio.sleep(STEP_S)
        finally:
            del self.runs[task]
        yield LAST


async def client(
    turns: EngineTurns, gpu: Gpu, model: str, steps: int, patience_s: float | None, background: bool
) -> None:
    """A request from its coming to its end, or until its client leaves."""
    has_ended = False
    gpu.asked[model] += 1
    gpu.in_front[model] += not background
    request = EngineRequest(str(now()), model, (), steps, True, "salt", background=background)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s), aclosing(turns.generate(model, request)) as items:
                async for item in items:
                    has_ended = item == LAST
    finally:
        gpu.asked[model] -= 1
        gpu.in_front[model] -= not background
    assert has_ended or patience_s is not None, f"a request of {model} has no end"


async def schedule(rng: random.Random) -> Gpu:
    """One schedule. Raises `AssertionError` where a rule is broken."""
    models = [f"model {number}" for number in range(rng.randint(2, 5))]
    terms = TurnTerms(rng.choice([0.5, 5, 30]), rng.choice([1, 30, 120]), rng.choice([0, 5, 20]))
    gpu = Gpu(rng, terms, dict.fromkeys(models, 0), dict.fromkeys(models, 0))
    engines = await start_one_after_another({model: started(model, gpu) for model in models})
    failed: list[str] = []
    turns = EngineTurns(engines, terms, give_up=lambda: failed.append("a swap failed"))
    running = asyncio.create_task(turns.run())
    clients = []
    weights = [rng.choice([0, 1, 1, 10]) for _ in models[1:]]
    while now() < COME_FOR_S:
        for _ in range(rng.choice([1, 1, 2, 8])):
            (model,) = rng.choices(models, [1, *weights])
            steps, patience_s = rng.choice([1, 2, 10, 60, 240]), rng.choice([None, None, None, 0.1, 20, 90])
            background = rng.random() < 0.2
            clients.append(asyncio.create_task(client(turns, gpu, model, steps, patience_s, background)))
        await asyncio.sleep(rng.choice([0, 0.1, 3, 60]))
    for one in asyncio.as_completed(clients):
        await one
    assert not failed and not running.done()
    running.cancel()
    return gpu


def started(model: str, gpu: Gpu):  # type: ignore[no-untyped-def]
    """What starts a simulated engine."""

    async def start() -> SimulatedEngine:
        engine = gpu.engines[model] = SimulatedEngine(model=model, gpu=gpu)
        engine.take_gpu()
        return engine

    return start


def now() -> float:
    return asyncio.get_running_loop().time()


def simulate(count: int, seed: int) -> tuple[int, float]:
    """Run so many schedules. Returns the swaps in them, and the longest wait as a part of its bound."""
    swaps, nearest = 0, 0.0
    for number in range(count):
        rng = random.Random(f"{seed}:{number}")
        loop = SimulatedLoop(rng)
        try:
            gpu = loop.run_until_complete(schedule(rng))
        except (AssertionError, StuckError) as error:
            raise AssertionError(f"schedule {number} of seed {seed}: {error}") from error
        finally:
            loop.close()
        swaps, nearest = swaps + gpu.swaps, max(nearest, gpu.nearest)
    return swaps, nearest


def main(count: Annotated[int, typer.Option(min=1)] = 100, seed: int = 1) -> None:
    """Simulate schedules of models that share a GPU."""
    swaps, nearest = simulate(count, seed)
    print(f"{count} schedules of seed {seed}: every request ended; {swaps} swaps; ", end="")
    print(f"the longest wait was {nearest:.0%} of its bound")


if __name__ == "__main__":
    typer.run(main)
