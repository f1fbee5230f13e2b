"""Service tiers at an engine: priority goes before the rest within the weights, and flex takes what they leave."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest

import serve.fairness.places as places_module
from models.engine import EngineRequest, ServiceTier
from serve.fairness.places import LONGEST_LEFT_S, PLACES_FOR_ONE_IN_BACKGROUND, FairPlaces, QueueFull
from serve.fairness.queue import PRIORITY, Claim, Place, claim_of
from tests.simulation.loop import SimulatedLoop

PLACES = 64
# Seconds that a request runs, a third each.
RUNS_S = (1.0, 2.0, 4.0)
MEAN_S = sum(RUNS_S) / len(RUNS_S)
FOR_S = 40
DEFAULT: ServiceTier = "default"


def asked(project: str, tier: ServiceTier = DEFAULT, weight: int = 1) -> Claim:
    request = EngineRequest(
        "id", "m", (), 100, False, "salt", project_id=project, project_weight=weight, tier=tier
    )
    return claim_of(request, places=1)


def test_a_tier_is_a_line_of_its_own_with_its_weight() -> None:
    assert asked("a", "priority", 3) == Claim("a:priority", 3 * PRIORITY, 1, 100)
    assert asked("a", "flex", 3) == Claim("a:flex", 3, 1, 100, background=True, fills=True)
    assert asked("a", weight=3) == Claim("a", 3, 1, 100)


@dataclass
class Engine:
    """A simulated engine: what runs gets on with time, and what is paused does not. Of each project: how long its
    requests took, and how long they had a place, all together."""

    rng: random.Random
    latencies_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    used_s: Counter[str] = field(default_factory=Counter)
    changed: dict[Place, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.places = FairPlaces(lambda: PLACES, on_pause=lambda place: self.changed[place].set())

    async def run(self, loads: Mapping[Claim, float], for_s: float) -> None:
        """Each claim asks, at random moments, for so many times what the engine can do."""
        await asyncio.gather(*(self._load(claim, times, for_s) for claim, times in loads.items()))
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _load(self, claim: Claim, times: float, for_s: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() < for_s:
            await asyncio.sleep(self.rng.expovariate(times * PLACES / MEAN_S))
            task = loop.create_task(self._request(claim))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _request(self, claim: Claim) -> None:
        time = asyncio.get_running_loop().time
        began, left_s = time(), self.rng.choice(RUNS_S)
        place = await self.places.enter(claim)
        assert place is not None
        changed = self.changed[place]
        try:
            while left_s > 1e-6:
                since, runs = time(), place.paused is None
                changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s if runs else None):
                        await changed.wait()
                left_s -= time() - since if runs else 0
                self.used_s[claim.project_id] += time() - since if runs else 0
        finally:
            self.places.leave(place, used_tokens=100)
        self.latencies_s[claim.project_id].append(time() - began)


def simulated(loads: Mapping[Claim, float], *, for_s: float) -> Engine:
    loop = SimulatedLoop(random.Random(1))
    # It is a long one, and no schedule of faults.
    loop.steps = -(10**7)
    try:
        engine = Engine(random.Random(2))
        loop.run_until_complete(engine.run(loads, for_s))
    finally:
        loop.close()
    return engine


def lending(room: int) -> FairPlaces:
    return FairPlaces(lambda: room, on_pause=lambda place: None)


async def waiting(places: FairPlaces, claim: Claim) -> asyncio.Task[Place | None]:
    task = asyncio.create_task(places.wait(claim))
    await asyncio.sleep(0)
    return task


def later(monkeypatch: pytest.MonkeyPatch, by_s: float) -> None:
    """The clock of places goes ahead."""
    now = places_module._now
    monkeypatch.setattr(places_module, "_now", lambda: now() + by_s)


async def test_many_choices_in_flex_take_no_more_than_is_kept_however_long_they_waited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places, flex = lending(PLACES), replace(asked("f", "flex"), places=PLACES // 2)
    held = [places.try_enter(asked("a")) for _ in range(PLACES)]
    others = [await waiting(places, asked("a")) for _ in range(3)]
    large = await waiting(places, flex)
    later(monkeypatch, LONGEST_LEFT_S)
    for place in held[:3]:
        assert place is not None
        places.leave(place, used_tokens=100)
        await asyncio.sleep(0)
    assert all(other.done() for other in others) and not large.done()
    assert places.try_enter(asked("b", "priority"))
    large.cancel()
    await asyncio.gather(large, return_exceptions=True)


async def test_late_flex_that_fills_an_idle_engine_is_paused_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places = lending(PLACES)
    held = [places.try_enter(asked("a")) for _ in range(PLACES)]
    filling = [await waiting(places, asked("f", "flex")) for _ in range(PLACES + 8)]
    later(monkeypatch, LONGEST_LEFT_S)
    for place in held:
        assert place is not None
        places.leave(place, used_tokens=100)
    await asyncio.sleep(0)
    assert sum(task.done() for task in filling) == PLACES
    kept = PLACES // PLACES_FOR_ONE_IN_BACKGROUND
    assert sum(places.try_enter(asked("b")) is not None for _ in range(PLACES)) == PLACES - kept
    for task in filling:
        task.cancel()
    await asyncio.gather(*filling, return_exceptions=True)


async def test_late_flex_goes_before_the_rest_however_much_it_was_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places = lending(PLACES)
    held = [places.try_enter(asked("a")) for _ in range(PLACES - 1)]
    for _ in range(1000):
        place = places.try_enter(asked("f", "flex"))
        assert place is not None
        places.leave(place, used_tokens=100)
    assert places.try_enter(asked("f", "flex"))
    rest = [await waiting(places, asked("a")) for _ in range(3)]
    flex = await waiting(places, asked("f", "flex"))
    later(monkeypatch, LONGEST_LEFT_S)
    assert held[0] is not None
    places.leave(held[0], used_tokens=100)
    await asyncio.sleep(0)
    assert flex.done()
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


async def test_at_the_bound_the_longest_line_of_flex_loses_its_newest() -> None:
    places = FairPlaces(lambda: 1, max_waiting=4)
    assert places.try_enter(asked("a"))
    many = [await waiting(places, asked("f", "flex")) for _ in range(4)]
    other = await waiting(places, asked("g", "flex"))
    with pytest.raises(QueueFull):
        await many.pop()
    assert not other.done()
    with pytest.raises(QueueFull):
        await places.wait(asked("f", "flex"))
    for task in (*many, other):
        task.cancel()
    await asyncio.gather(*many, other, return_exceptions=True)


def p99(values: list[float]) -> float:
    return sorted(values)[int(0.99 * len(values))]


def test_at_fourfold_overload_priority_is_as_quick_as_alone() -> None:
    important = asked("a", "priority")
    rest = dict.fromkeys(map(asked, "abcd"), 1.0)
    alone = simulated({important: 0.2}, for_s=FOR_S).latencies_s["a:priority"]
    beside = simulated({important: 0.2, **rest}, for_s=FOR_S)
    assert len(alone) > 150 and p99(beside.latencies_s["a:priority"]) <= 1.2 * p99(alone)
    # The rest still has what is left, in equal parts.
    used = [beside.used_s[project] for project in "abcd"]
    assert min(used) > 0.8 * max(used) and sum(beside.used_s.values()) > 0.95 * FOR_S * PLACES


def test_without_its_tier_it_is_not_as_quick() -> None:
    rest = dict.fromkeys(map(asked, "abcd"), 1.0)
    alone = simulated({asked("e"): 0.3}, for_s=FOR_S).latencies_s["e"]
    beside = simulated({asked("e"): 0.3, **rest}, for_s=FOR_S).latencies_s["e"]
    assert p99(beside) > 1.2 * p99(alone)


def test_flex_takes_nearly_all_that_the_rest_leaves_and_delays_nobody() -> None:
    rest = dict.fromkeys(map(asked, "ab"), 0.3)
    alone = simulated(rest, for_s=FOR_S)
    beside = simulated({**rest, asked("c", "flex"): 2.0}, for_s=FOR_S)
    left_s = FOR_S * PLACES - beside.used_s["a"] - beside.used_s["b"]
    assert beside.used_s["c:flex"] >= 0.9 * left_s
    for project in "ab":
        assert p99(beside.latencies_s[project]) <= 1.05 * p99(alone.latencies_s[project])


def test_flex_gets_on_where_the_rest_leaves_nothing() -> None:
    rest = dict.fromkeys(map(asked, "abcd"), 1.0)
    beside = simulated({**rest, asked("e", "flex"): 0.5, asked("f", "flex"): 0.5}, for_s=FOR_S)
    for project in ("e:flex", "f:flex"):
        assert len(beside.latencies_s[project]) > 10
    # No more than one place of so many, once it has waited for as long as it may.
    assert beside.used_s["e:flex"] + beside.used_s["f:flex"] <= FOR_S * PLACES / PLACES_FOR_ONE_IN_BACKGROUND
