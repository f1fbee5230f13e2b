"""Places shared by projects: who is next, how much one may hold, and who is turned away."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve.fairness.places import FairPlaces, QueueFull
from serve.fairness.queue import Claim, Place
from tests.serve.fairness.schedules import simulate


def claim(project: str, *, weight: int = 1, places: int = 1, tokens: int = 100) -> Claim:
    return Claim(project, weight, places, tokens)


async def others_run() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@dataclass(slots=True)
class Crowd:
    """Requests that wait for places or hold them."""

    places: FairPlaces
    entered: list[Place] = field(default_factory=list)
    refused: list[Claim] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    ended: set[Place] = field(default_factory=set)
    # Places that were paused or went on.
    told: list[Place] = field(default_factory=list)

    async def add(self, *claims: Claim) -> None:
        for each in claims:
            self.tasks.append(asyncio.create_task(self._enter(each)))
        await others_run()

    async def _enter(self, each: Claim) -> None:
        try:
            place = await self.places.enter(each)
        except QueueFull:
            self.refused.append(each)
        else:
            assert place is not None
            self.entered.append(place)

    async def end(self, place: Place, used_tokens: int | None = None) -> None:
        self.ended.add(place)
        self.places.leave(place, used_tokens=place.claim.tokens if used_tokens is None else used_tokens)
        await others_run()

    def running(self) -> dict[str, int]:
        running: Counter[str] = Counter()
        for place in self.held():
            if place.paused is None:
                running[place.claim.project_id] += place.claim.places
        return dict(running)

    def held(self) -> list[Place]:
        return [place for place in self.entered if place not in self.ended]

    @property
    def order(self) -> str:
        return "".join(each.claim.project_id for each in self.entered)

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def crowd(room: int, *, max_waiting: int = -1) -> Crowd:
    return Crowd(FairPlaces(lambda: room, max_waiting=max_waiting))


def lending(room: int) -> Crowd:
    """Where what runs can be paused."""
    here = crowd(room)
    here.places = FairPlaces(lambda: room, on_pause=here.told.append)
    return here


async def test_a_project_that_comes_to_a_full_engine_waits_for_one_place_and_not_behind_another_projects_line() -> (
    None
):
    here = crowd(4)
    await here.add(*[claim("a") for _ in range(40)])
    await here.add(claim("b"))
    assert here.order == "aaaa"
    await here.end(here.entered[0])
    assert here.order == "aaaab"
    await here.close()


async def test_a_project_that_is_alone_has_all_places_and_gives_back_what_a_newcomer_is_owed() -> None:
    here = lending(64)
    await here.add(*[claim("a") for _ in range(70)])
    assert here.order == "a" * 64
    await here.add(*[claim("b") for _ in range(40)])
    assert here.running() == {"a": 32, "b": 32}
    # The newest go first.
    assert here.told == list(reversed(here.entered[32:64]))
    await here.close()


async def test_a_project_that_is_alone_has_some_requests_ahead_and_none_where_another_waits() -> None:
    here = lending(64)
    here.places = FairPlaces(lambda: 64, on_pause=here.told.append, ahead=8)
    await here.add(*[claim("a") for _ in range(80)])
    assert here.running() == {"a": 72}
    await here.add(claim("b"))
    # Those ahead, which had not begun, and one that had.
    assert here.running() == {"a": 63, "b": 1}
    assert here.told == list(reversed(here.entered[63:72]))
    await here.end(here.entered[-1])
    assert here.running() == {"a": 72} and not any(place.paused for place in here.held())
    await here.close()


async def test_what_is_paused_goes_on_before_anything_new_of_its_project_the_oldest_first() -> None:
    here = lending(4)
    await here.add(*[claim("a") for _ in range(6)], claim("b"), claim("b"))
    old, newer = here.entered[2], here.entered[3]
    assert (old.paused, newer.paused) != (None, None) and here.running() == {"a": 2, "b": 2}
    here.told.clear()
    await here.end(here.entered[0])
    await here.end(here.entered[1])
    assert here.told == [old, newer] and here.order == "aaaabb"
    await here.close()


async def test_shares_are_by_weight() -> None:
    here = lending(64)
    await here.add(*[claim("a", weight=3) for _ in range(64)])
    await here.add(*[claim("b") for _ in range(64)])
    assert here.running() == {"a": 48, "b": 16}
    await here.close()


async def test_every_project_has_a_place_where_there_are_as_many_as_places() -> None:
    here = lending(8)
    for project in "abcdefgh":
        await here.add(*[claim(project) for _ in range(8)])
    assert here.running() == dict.fromkeys("abcdefgh", 1)
    await here.add(claim("i"))
    assert len(here.running()) == 8
    await here.end(next(place for place in here.entered if place.paused is None))
    assert here.running()["i"] == 1
    await here.close()


async def test_what_a_project_does_not_ask_for_is_lent_to_the_others() -> None:
    here = lending(12)
    await here.add(claim("a"), *[claim("b") for _ in range(20)], *[claim("c") for _ in range(20)])
    running = here.running()
    assert running["a"] == 1 and running["b"] + running["c"] == 11 and running["c"] >= 4
    await here.close()


async def test_what_was_paused_may_end_before_it_goes_on() -> None:
    here = lending(2)
    await here.add(claim("a"), claim("a"), claim("b"))
    paused = here.entered[1]
    assert paused.paused
    await here.end(paused)
    await here.end(here.entered[2])
    assert here.running() == {"a": 1} and len(here.told) == 1
    await here.close()


async def test_a_large_claim_takes_back_as_many_places_as_it_needs() -> None:
    here = lending(8)
    await here.add(*[claim("a") for _ in range(8)], claim("b", places=3))
    assert here.running() == {"a": 5, "b": 3}
    await here.add(claim("c", places=4))
    # More than the others hold above their shares: it waits for those that end, and is next.
    assert here.running() == {"a": 5, "b": 3}
    await here.close()


async def test_turns_are_given_by_weight() -> None:
    here = crowd(1)
    await here.add(claim("x"))
    await here.add(*[claim("a", weight=3) for _ in range(30)], *[claim("b") for _ in range(30)])
    for number in range(24):
        await here.end(here.entered[number])
    assert Counter(here.order[1:25]) == {"a": 18, "b": 6}
    await here.close()


async def test_who_used_less_than_it_asked_for_is_next_sooner() -> None:
    here = crowd(1)
    await here.add(claim("x"))
    await here.add(*[claim("a") for _ in range(20)], *[claim("b") for _ in range(20)])
    for number in range(22):
        ended = here.entered[number]
        await here.end(ended, used_tokens=10 if ended.claim.project_id == "a" else 100)
    found = Counter(here.order[1:23])
    assert found["a"] > 2 * found["b"] > 0
    await here.close()


async def test_who_was_away_has_saved_nothing_up() -> None:
    here = crowd(1)
    await here.add(claim("a"))
    await here.end(here.entered[0])
    await here.add(*[claim("b") for _ in range(50)])
    for number in range(1, 31):
        await here.end(here.entered[number])
    await here.add(*[claim("a") for _ in range(10)])
    for number in range(31, 41):
        await here.end(here.entered[number])
    assert 4 <= here.order[32:42].count("a") <= 6
    await here.close()


async def test_a_large_request_whose_turn_it_is_is_not_passed_by_small_ones_for_ever() -> None:
    here = crowd(8)
    await here.add(*[claim("a") for _ in range(30)])
    await here.add(claim("b", places=8))
    for number in range(8):
        await here.end(here.entered[number], used_tokens=101)
    assert here.order == "a" * 8 + "b"
    await here.close()


async def test_a_request_of_more_choices_than_there_are_places_runs_alone() -> None:
    here = crowd(2)
    await here.add(claim("a", places=8), claim("b"))
    assert here.order == "a"
    await here.end(here.entered[0])
    assert here.order == "ab"
    await here.close()


async def test_at_the_bound_the_project_with_the_longest_line_loses_its_newest_request() -> None:
    here = crowd(1, max_waiting=4)
    await here.add(*[claim("a") for _ in range(5)])
    await here.add(claim("b"))
    assert [each.project_id for each in here.refused] == ["a"]
    assert len(here.places) == 4
    await here.end(here.entered[0])
    assert here.order == "ab"
    await here.close()


async def test_at_the_bound_the_project_with_the_longest_line_gets_no_more_in() -> None:
    here = crowd(1, max_waiting=4)
    await here.add(*[claim("a") for _ in range(6)])
    assert [each.project_id for each in here.refused] == ["a"]
    await here.close()


async def test_where_nobody_may_wait_nobody_does() -> None:
    places = FairPlaces(lambda: 1, max_waiting=0)
    await places.enter(claim("a"))
    with pytest.raises(QueueFull):
        await places.enter(claim("b"))


async def test_without_any_room_all_who_wait_are_told() -> None:
    rooms = [1]
    places = FairPlaces(lambda: rooms[0])
    await places.enter(claim("a"))
    waiting = [asyncio.create_task(places.enter(claim(name))) for name in "ab"]
    await others_run()
    rooms[0] = 0
    places.let_in()
    assert await asyncio.gather(*waiting) == [None, None]


@pytest.mark.parametrize("its_turn_has_come", [False, True])
async def test_who_goes_while_waiting_leaves_nothing_behind(its_turn_has_come: bool) -> None:
    here = crowd(1)
    await here.add(claim("a"))
    (held,) = here.entered
    going = asyncio.create_task(here.places.enter(claim("b", places=1)))
    await others_run()
    if its_turn_has_come:
        here.places.leave(held, used_tokens=1)
    going.cancel()
    await asyncio.gather(going, return_exceptions=True)
    if not its_turn_has_come:
        await here.end(here.entered[0])
    assert here.places.try_enter(claim("c"))
    await here.close()


async def test_who_waited_behind_a_large_request_that_goes_is_let_in() -> None:
    here = crowd(2)
    await here.add(claim("a"))
    large = asyncio.create_task(here.places.enter(claim("b", places=2)))
    await others_run()
    await here.add(claim("c"))
    assert here.order == "a"
    large.cancel()
    await asyncio.gather(large, return_exceptions=True)
    await others_run()
    assert here.order == "ac"
    await here.close()


async def test_no_simulated_schedule_starves_a_request_or_a_project() -> None:
    assert await simulate(200, seed=1) > 0


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from("abc"), st.integers(1, 3), st.integers(1, 4)),
        st.tuples(st.just("end"), st.integers(0, 30), st.integers(0, 200), st.just(0)),
        st.tuples(st.just("cancel"), st.integers(0, 30), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=120)
@given(room=st.integers(1, 8), pausing=st.booleans(), steps=steps)
def test_no_order_of_events_loses_a_place_gives_one_twice_or_starves_anybody(
    room: int, pausing: bool, steps: list[tuple[str, object, int, int]]
) -> None:
    asyncio.run(_play(room, pausing, steps))


async def _play(room: int, pausing: bool, steps: list[tuple[str, object, int, int]]) -> None:
    here = lending(room) if pausing else crowd(room)
    for kind, what, first, second in steps:
        held = here.held()
        if kind == "add":
            await here.add(claim(str(what), weight=first, places=second))
        elif kind == "end" and held:
            await here.end(held[int(str(what)) % len(held)], used_tokens=first)
        elif kind == "cancel" and here.tasks:
            task = here.tasks[int(str(what)) % len(here.tasks)]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await others_run()
        running = [place for place in here.held() if place.paused is None]
        assert sum(place.claim.places for place in running) <= room or len(running) == 1
        # Whoever waits finds the places taken, unless it is a large one's turn.
        assert running or not here.held()
    while running := [place for place in here.held() if place.paused is None]:
        await here.end(running[-1])
    # With nobody left who runs, nobody is left who waits or is paused.
    assert len(here.places) == 0 and not here.held()
    await here.close()
