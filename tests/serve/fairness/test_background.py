"""Requests in the background take places that nobody else wants, and cost nobody theirs."""

from __future__ import annotations

import asyncio

import pytest

from models.engine import EngineRequest
from serve.fairness.places import QUIET_S, Claim, FairPlaces, QueueFull, Shares, claim_of

ALONE = Shares(alone=1, contended=1)


def claim(project: str, *, background: bool = False) -> Claim:
    request = EngineRequest("id", "m", (), 10, False, "salt", project_id=project, background=background)
    return claim_of(request, places=1)


async def waiting(places: FairPlaces, asked: Claim) -> asyncio.Task[bool]:
    task = asyncio.create_task(places.enter(asked))
    await asyncio.sleep(0)
    return task


async def test_it_waits_until_nobody_else_does_however_long_it_has_waited() -> None:
    places = FairPlaces(lambda: 1, shares=ALONE)
    assert places.try_enter(claim("a"))
    line = await waiting(places, claim("a", background=True))
    first, second = await waiting(places, claim("a")), await waiting(places, claim("a"))
    places.leave(claim("a"), used_tokens=10)
    assert await first and not line.done()
    places.leave(claim("a"), used_tokens=10)
    assert await second and not line.done()
    places.leave(claim("a"), used_tokens=10)
    assert await line


async def test_it_is_not_begun_while_another_waits_for_its_share() -> None:
    places = FairPlaces(lambda: 4, shares=Shares(alone=0.25, contended=0.25))
    assert places.try_enter(claim("a"))
    held_back = await waiting(places, claim("a"))
    assert not held_back.done()
    assert not places.try_enter(claim("b", background=True))
    held_back.cancel()
    await asyncio.gather(held_back, return_exceptions=True)
    assert places.try_enter(claim("b", background=True))


@pytest.mark.parametrize(("room", "most"), [(4, 1), (64, 2), (256, 8)])
async def test_beside_others_it_has_few_places_and_alone_all_of_them(room: int, most: int) -> None:
    places = FairPlaces(lambda: room, shares=ALONE)
    assert places.try_enter(claim("a"))
    lines = [claim(str(number), background=True) for number in range(room)]
    assert [places.try_enter(line) for line in lines].count(True) == most
    places.leave(claim("a"), used_tokens=1)
    # The next one may come at any moment.
    assert not places.try_enter(lines[0])
    places._last_seen -= QUIET_S
    assert [places.try_enter(line) for line in lines].count(True) == room - most
    assert not places.try_enter(claim("a"))


async def test_it_makes_nobodys_share_smaller() -> None:
    places = FairPlaces(lambda: 10, shares=Shares(alone=0.9, contended=0.1))
    assert places.try_enter(claim("b", background=True))
    assert all(places.try_enter(claim("a")) for _ in range(8))


async def test_in_a_full_queue_it_gives_way_first() -> None:
    places = FairPlaces(lambda: 1, shares=ALONE, max_waiting=1)
    assert places.try_enter(claim("a"))
    line = await waiting(places, claim("a", background=True))
    other = await waiting(places, claim("a"))
    with pytest.raises(QueueFull):
        await line
    with pytest.raises(QueueFull):
        await places.enter(claim("b", background=True))
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)
