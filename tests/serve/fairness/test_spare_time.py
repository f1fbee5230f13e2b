"""Time that nobody else wants: when a piece begins, and how much of all time pieces take."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from serve.fairness.places import FairPlaces
from serve.fairness.queue import Claim
from serve.fairness.spare_time import MOST_SAVED_S, QUIET_S, SpareTime

FOREGROUND = Claim("p", 1, 1, 10)
BACKGROUND = Claim("b", 1, 1, 10, background=True)


@dataclass
class Clock:
    """Time that passes when somebody sleeps, and only then. `quiet_s` is what the engine's places say."""

    now: float = 100.0
    busy_until: float = 0.0
    slept: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    def quiet_s(self) -> float:
        return max(0.0, self.now - self.busy_until)

    def spare(self, *, share: float) -> SpareTime:
        return SpareTime(self.quiet_s, share=share, clock=self, sleep=self.sleep)


async def pieces(spare: SpareTime, clock: Clock, number: int, *, each_s: float) -> None:
    for _ in range(number):
        async with spare.turn():
            clock.now += each_s


async def test_a_piece_waits_until_nobody_has_wanted_the_engine_for_a_moment() -> None:
    clock = Clock(busy_until=103.0)
    async with clock.spare(share=0.5).turn():
        assert clock.now == pytest.approx(103.0 + QUIET_S, abs=0.1)


async def test_pieces_take_no_more_than_their_share_of_the_time_from_when_what_was_saved_is_used() -> None:
    clock = Clock()
    spare = clock.spare(share=0.02)
    await pieces(spare, clock, 100, each_s=MOST_SAVED_S / 100)
    assert clock.slept == []
    began = clock.now
    await pieces(spare, clock, 100, each_s=0.04)
    assert 100 * 0.04 / (clock.now - began) == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize(("too_long_s", "paid_s"), [(0.5, 0.5), (20.0, MOST_SAVED_S)])
async def test_a_piece_that_took_too_long_is_paid_back_but_not_for_ever(
    too_long_s: float, paid_s: float
) -> None:
    clock = Clock()
    spare = clock.spare(share=0.1)
    await pieces(spare, clock, 1, each_s=MOST_SAVED_S + too_long_s)
    began = clock.now
    await pieces(spare, clock, 1, each_s=0.01)
    assert clock.now - began == pytest.approx(paid_s / 0.1, abs=1)


async def test_without_a_share_no_piece_begins() -> None:
    clock = Clock()
    waiting = asyncio.create_task(pieces(clock.spare(share=0.0), clock, 1, each_s=0.01))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_who_gives_up_keeps_nobody_else_waiting() -> None:
    clock = Clock(busy_until=float("inf"))
    spare = clock.spare(share=0.5)
    first = asyncio.create_task(pieces(spare, clock, 1, each_s=0.01))
    second = asyncio.create_task(pieces(spare, clock, 1, each_s=0.01))
    await asyncio.sleep(0)
    first.cancel()
    clock.busy_until = 0.0
    await second
    assert first.cancelled()


async def test_an_engine_is_quiet_while_only_the_background_asks() -> None:
    places = FairPlaces(lambda: 2)
    assert places.quiet_s() == float("inf")
    line = await places.enter(BACKGROUND)
    assert line is not None and places.quiet_s() == float("inf")
    chat = await places.enter(FOREGROUND)
    assert chat is not None and places.quiet_s() == 0.0
    waiting = asyncio.create_task(places.enter(FOREGROUND))
    await asyncio.sleep(0)
    places.leave(line, used_tokens=1)
    places.leave(chat, used_tokens=1)
    other = await waiting
    assert other is not None and places.quiet_s() == 0.0
    places.leave(other, used_tokens=1)
    assert 0.0 <= places.quiet_s() < float("inf")
