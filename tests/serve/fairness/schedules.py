"""Simulated schedules at an engine that lends places: `python -m tests.serve.fairness.schedules --count 100000`.

In each schedule projects of several weights come and go with short and long requests, some of several places. Time
goes by in steps; what runs gets on by one step, and what is paused does not. After each step no place may be lost or
taken twice, and where there are as many places as projects and every request takes one, each project that has a request
has one that runs. Some projects fill what the others leave: none of theirs runs while one of the others waits, and none
waits beside a free place. In the end every request must have ended.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from serve.fairness.places import FairPlaces
from serve.fairness.queue import Claim, Place
from serve.fairness.replica_turns import AHEAD

# No request may take longer than all the work there is, one after the other.
STEPS = 60


@dataclass(slots=True)
class Request:
    claim: Claim
    steps_left: int
    place: Place | None = None
    waiting: Coroutine[Any, Any, Place | None] | None = None

    @property
    def runs(self) -> bool:
        return self.place is not None and self.place.paused is None

    def look(self) -> None:
        """Go on where its turn has come."""
        if self.waiting is None:
            return
        try:
            self.waiting.send(None)
        except StopIteration as done:
            self.place, self.waiting = done.value, None


@dataclass(slots=True)
class Schedule:
    """One run of requests over one engine with `room` places."""

    rng: random.Random
    room: int
    large: bool
    pauses: int = 0
    filling: frozenset[str] = frozenset()
    requests: list[Request] = field(default_factory=list)

    def run(self) -> None:
        """Raises `AssertionError` where a rule is broken. To be called in an event loop."""
        places = FairPlaces(lambda: self.room, on_pause=self._paused, ahead=self.room // AHEAD)
        projects = [(name, self.rng.choice([1, 1, 2, 5, 16])) for name in "abcdef"[: self.rng.randint(1, 6)]]
        self.filling = frozenset(name for name, _ in projects if self.rng.random() < 0.2)
        for step in range(STEPS):
            for _ in range(self.rng.choice([0, 0, 1, 1, 3, self.room])):
                self._come(places, *self.rng.choice(projects))
            self._step(places, step)
        work = sum(request.steps_left for request in self.requests)
        for step in range(work + 1):
            if not self.requests:
                return
            self._step(places, step)
        raise AssertionError(f"{len(self.requests)} requests never ended")

    def _paused(self, place: Place) -> None:
        self.pauses += place.paused is not None

    def _come(self, places: FairPlaces, project: str, weight: int) -> None:
        taken = self.rng.randint(1, max(1, self.room // 2)) if self.large and self.rng.random() < 0.1 else 1
        steps = self.rng.choice([1, 2, 5, 40])
        fills = project in self.filling
        claim = Claim(project, weight, taken, steps * taken, background=fills, fills=fills)
        request = Request(claim, steps, places.try_enter(claim))
        if request.place is None:
            request.waiting = places.wait(claim)
            request.look()
        self.requests.append(request)

    def _step(self, places: FairPlaces, step: int) -> None:
        for request in [one for one in self.requests if one.runs]:
            # Paused meanwhile, by one that came into a place which another of this step gave back.
            if not request.runs or request.place is None:
                continue
            request.steps_left -= 1
            if not request.steps_left:
                places.leave(request.place, used_tokens=request.claim.tokens)
                self.requests.remove(request)
                self._look()
        self._check(step)

    def _look(self) -> None:
        turns = [one for one in self.requests if one.waiting is not None and _has_its_turn(one)]
        for request in turns:
            request.look()

    def _check(self, step: int) -> None:
        running = [one for one in self.requests if one.runs]
        held = sum(one.claim.places for one in running)
        asking = {one.claim.project_id for one in self.requests}
        # What a project alone has ahead may be left where a large request comes that is owed less than it asks for.
        ahead = self.room // AHEAD if len(asking) == 1 or self.large else 0
        assert held <= self.room + ahead or len(running) == 1, f"step {step}: {held} of {self.room} places"
        served = {one.claim.project_id for one in running}
        assert served or not asking, f"step {step}: nothing runs"
        if self.large:
            return
        if len(asking) <= self.room:
            left_out = asking - served - self.filling
            assert not left_out, f"step {step}: nothing of {left_out} runs"
        waiting = {one.claim.project_id for one in self.requests if not one.runs}
        if waiting - self.filling:
            assert not served & self.filling, f"step {step}: {served & self.filling} before {waiting}"
        assert not waiting or held >= self.room, f"step {step}: {held} of {self.room}, and {waiting} wait"


def _has_its_turn(request: Request) -> bool:
    frame = request.waiting.cr_frame if request.waiting is not None else None  # type: ignore[attr-defined]
    return frame is not None and frame.f_locals["turn"].done()


async def simulate(count: int, seed: int) -> int:
    """Run so many schedules. Returns how often a request was paused in them."""
    pauses = 0
    for number in range(count):
        rng = random.Random(f"{seed}:{number}")
        schedule = Schedule(rng, rng.choice([1, 2, 4, 8, 16]), large=rng.random() < 0.3)
        try:
            schedule.run()
        except AssertionError as error:
            raise AssertionError(f"schedule {number} of seed {seed}: {error}") from error
        pauses += schedule.pauses
    return pauses


def main(count: Annotated[int, typer.Option(min=1)] = 1000, seed: int = 1) -> None:
    """Simulate schedules of requests at an engine that lends places."""
    pauses = asyncio.run(simulate(count, seed))
    print(f"{count} schedules of seed {seed}: every request ended; {pauses} pauses")


if __name__ == "__main__":
    typer.run(main)
