"""Places shared by projects: who is next, how much one may hold, and who is turned away."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve.fairness.places import ACTIVE_S, Claim, FairPlaces, QueueFull, Shares


def claim(project: str, *, weight: int = 1, places: int = 1, tokens: int = 100) -> Claim:
    return Claim(project, weight, places, tokens)


async def others_run() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@dataclass(slots=True)
class Crowd:
    """Requests that wait for places or hold them."""

    places: FairPlaces
    entered: list[Claim] = field(default_factory=list)
    refused: list[Claim] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def add(self, *claims: Claim) -> None:
        for each in claims:
            self.tasks.append(asyncio.create_task(self._enter(each)))
        await others_run()

    async def _enter(self, each: Claim) -> None:
        try:
            await self.places.enter(each)
        except QueueFull:
            self.refused.append(each)
        else:
            self.entered.append(each)

    async def end(self, each: Claim, used_tokens: int | None = None) -> None:
        self.places.leave(each, used_tokens=each.tokens if used_tokens is None else used_tokens)
        await others_run()

    @property
    def order(self) -> str:
        return "".join(each.project_id for each in self.entered)

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def crowd(room: int, *, share: float = 1.0, contended: float | None = None, max_waiting: int = -1) -> Crowd:
    shares = Shares(share, contended or share)
    return Crowd(FairPlaces(lambda: room, shares=shares, max_waiting=max_waiting))


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


async def test_a_project_leaves_places_free_for_one_that_comes_next() -> None:
    here = crowd(64, share=0.25)
    await here.add(*[claim("a") for _ in range(64)])
    assert here.order == "a" * 16
    await here.add(claim("b"))
    assert here.order[-1] == "b"
    await here.close()


async def test_places_that_one_project_may_not_hold_are_not_lost_to_others() -> None:
    here = crowd(64, share=0.25)
    for project in "abcdefghij":
        await here.add(*[claim(project) for _ in range(64)])
    held = Counter(here.order)
    # By the rule, ten projects leave less than a quarter free; the last to come has its places, too.
    assert sum(held.values()) >= 48 and min(held.values()) >= 1
    await here.close()


async def test_beside_another_project_one_may_hold_less_until_the_other_has_been_away_for_a_while() -> None:
    clock = asyncio.get_running_loop()
    here = crowd(64, share=0.5, contended=0.25)
    await here.add(*[claim("a") for _ in range(64)])
    assert here.order == "a" * 32
    await here.add(claim("b"))
    assert here.order[-1] == "b"
    await here.end(here.entered[-1])
    for number in range(20):
        await here.end(here.entered[number])
    # Down to 16 of 64, and each that ends makes room for one of its own.
    assert Counter(here.order)["a"] == 32 + 4
    later, clock.time = clock.time() + 2 * ACTIVE_S, lambda: later  # type: ignore[method-assign]
    await here.end(here.entered[20])
    assert Counter(here.order)["a"] - 21 == 32
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
        await here.end(ended, used_tokens=10 if ended.project_id == "a" else 100)
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
    places = FairPlaces(lambda: 1, shares=Shares(1, 1), max_waiting=0)
    await places.enter(claim("a"))
    with pytest.raises(QueueFull):
        await places.enter(claim("b"))


async def test_without_any_room_all_who_wait_are_told() -> None:
    rooms = [1]
    places = FairPlaces(lambda: rooms[0], shares=Shares(1, 1))
    await places.enter(claim("a"))
    waiting = [asyncio.create_task(places.enter(claim(name))) for name in "ab"]
    await others_run()
    rooms[0] = 0
    places.let_in()
    assert await asyncio.gather(*waiting) == [False, False]


@pytest.mark.parametrize("its_turn_has_come", [False, True])
async def test_who_goes_while_waiting_leaves_nothing_behind(its_turn_has_come: bool) -> None:
    here = crowd(1)
    await here.add(claim("a"))
    going = asyncio.create_task(here.places.enter(claim("b", places=1)))
    await others_run()
    if its_turn_has_come:
        here.places.leave(claim("a"), used_tokens=1)
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


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from("abc"), st.integers(1, 3), st.integers(1, 4)),
        st.tuples(st.just("end"), st.integers(0, 30), st.integers(0, 200), st.just(0)),
        st.tuples(st.just("cancel"), st.integers(0, 30), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=60)
@given(room=st.integers(1, 8), share=st.sampled_from([0.2, 0.5, 1.0]), steps=steps)
def test_no_order_of_events_loses_a_place_or_gives_one_twice(
    room: int, share: float, steps: list[tuple[str, object, int, int]]
) -> None:
    asyncio.run(_play(room, share, steps))


async def _play(room: int, share: float, steps: list[tuple[str, object, int, int]]) -> None:
    here = crowd(room, share=share)
    running: list[Claim] = []
    for kind, what, first, second in steps:
        if kind == "add":
            await here.add(claim(str(what), weight=first, places=second))
        elif kind == "end" and running:
            await here.end(running.pop(int(str(what)) % len(running)), used_tokens=first)
        elif kind == "cancel" and here.tasks:
            task = here.tasks[int(str(what)) % len(here.tasks)]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await others_run()
        running += here.entered
        here.entered.clear()
        held = sum(each.places for each in running)
        assert held <= room or len(running) == 1
    while running:
        await here.end(running.pop())
        running += here.entered
        here.entered.clear()
    # With nobody left who runs, nobody is left who waits.
    assert len(here.places) == 0
    await here.close()
