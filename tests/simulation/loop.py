"""An event loop without a clock and without I/O: time is a number, and which callback runs next is drawn from a seed.

asyncio does the rest: its tasks, futures, timeouts and shields are the real ones.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any, NoReturn

STEPS_AT_MOST = 50_000


class Place:
    """A process of the simulated world. What it started runs no further once it is dead, and waits while it pauses."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.is_paused = False
        self.held_back: list[asyncio.Handle] = []

    @property
    def runs(self) -> bool:
        return self.is_alive and not self.is_paused

    def context(self) -> Context:
        """A context for tasks and callbacks that belong here, and so does all that they start."""
        context = copy_context()
        context.run(_here.set, self)
        return context


_here: ContextVar[Place | None] = ContextVar("place", default=None)


class StuckError(Exception):
    """The schedule does not end: nothing is left to wait for, or it takes too many steps."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs one callback at a time, drawn from all that are ready. Time passes only where none is."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self._ready: list[asyncio.Handle] = []
        self._scheduled: list[asyncio.TimerHandle] = []
        self._now = 0.0
        self._at_steps: list[tuple[int, int, Callable[[], None]]] = []
        self.steps = 0
        self.errors: list[BaseException] = []
        self.set_exception_handler(type(self)._note)

    def time(self) -> float:
        return self._now

    def at_step(self, step: int, action: Callable[[], None]) -> None:
        """Call `action` before the callback of this number runs: between any two, wherever an await is."""
        heapq.heappush(self._at_steps, (step, len(self._at_steps), action))

    def resume(self, place: Place) -> None:
        """What became ready while the place paused runs now; of a dead one, nothing does."""
        place.is_paused = False
        if place.is_alive:
            self._ready += place.held_back
            place.held_back = []

    def revive(self, place: Place) -> None:
        """For the end of the world: what the dead left in the middle is cleaned up."""
        place.is_alive = True
        self.resume(place)

    def run_in_executor(self, *_: Any) -> NoReturn:
        raise NotImplementedError("a simulation has one thread")

    def _note(self, context: dict[str, Any]) -> None:
        # What a dead process left unread is nobody's error; what a callback raises is the simulation's own.
        if "future" not in context and "task" not in context and context.get("exception") is not None:
            self.errors.append(context["exception"])

    def _run_once(self) -> None:
        if not self._ready:
            self._let_time_pass()
        ready = self._ready
        index = int(self._rng.random() * len(ready))
        ready[index], ready[-1] = ready[-1], ready[index]
        handle = ready.pop()
        if handle._cancelled:  # type: ignore[attr-defined]
            return
        self._count_step()
        place = handle._context.get(_here)  # type: ignore[attr-defined]
        if place is not None and not place.runs:
            place.held_back.append(handle)
        else:
            handle._run()  # type: ignore[attr-defined]

    def _count_step(self) -> None:
        self.steps += 1
        while self._at_steps and self._at_steps[0][0] <= self.steps:
            heapq.heappop(self._at_steps)[2]()
        if self.steps > STEPS_AT_MOST:
            raise StuckError(f"{self.steps} steps and no end")

    def _let_time_pass(self) -> None:
        timers = self._scheduled
        while timers and timers[0]._cancelled:  # type: ignore[attr-defined]
            heapq.heappop(timers)._scheduled = False  # type: ignore[attr-defined]
        if not timers:
            raise StuckError("everybody waits, and nothing will happen")
        self._now = max(self._now, timers[0].when())
        while timers and timers[0].when() <= self._now:
            timer = heapq.heappop(timers)
            timer._scheduled = False  # type: ignore[attr-defined]
            self._ready.append(timer)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is thrown away when its time comes."""

    def _process_events(self, event_list: Any) -> None:
        raise NotImplementedError("a simulation has no I/O")

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector."""
