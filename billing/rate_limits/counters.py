"""Counters behind rate limits: a sliding minute as two counts, an hour or a day as one, what a store is asked, a store
in memory, and what other stores have in common."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from math import ceil, floor
from typing import Any, Literal, Protocol, TypeVar, get_args

from billing.caller import WindowState
from billing.errors import LimitPeriod, LimitsUnavailable

T = TypeVar("T")
log = logging.getLogger(__name__)
WINDOW_S = 60
# Sums of shares carry rounding errors far below this, and counts are whole.
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Window:
    """One limit at one moment: counts of the last whole minute and of this one, `elapsed_s` into it."""

    limit: int
    previous: int
    current: int
    elapsed_s: float

    @property
    def used(self) -> float:
        return self.previous * (1 - self.elapsed_s / WINDOW_S) + self.current

    def admits(self, amount: int) -> bool:
        return self.used + amount <= self.limit + ROUNDING

    def wait_s(self, amount: int) -> float:
        """Seconds until `amount` fits if nothing else comes, or a whole window where it is over the limit."""
        if amount > self.limit:
            return WINDOW_S
        if self.admits(amount):
            return 0.0
        room = self.limit - self.current - amount
        if room >= 0:
            return _decay_s(self.previous, room) - self.elapsed_s
        return WINDOW_S - self.elapsed_s + _decay_s(self.current, self.limit - amount)

    @property
    def state(self) -> WindowState:
        remaining = max(0, floor(self.limit - self.used + ROUNDING))
        windows_left = 2 if self.current > 0 else 1 if self.previous > 0 else 0
        return WindowState(self.limit, remaining, max(0.0, windows_left * WINDOW_S - self.elapsed_s))


@dataclass(frozen=True, slots=True)
class PeriodWindow(Window):
    """An hour or a day, of which nothing counts any more once it has ended, in `ends_in_s`."""

    ends_in_s: float

    def wait_s(self, amount: int) -> float:
        return 0.0 if self.admits(amount) else self.ends_in_s

    @property
    def state(self) -> WindowState:
        return WindowState(self.limit, max(0, self.limit - self.current), self.ends_in_s)


def retry_after_s(window: Window, amount: int) -> int:
    """`Retry-After` in whole seconds, at least one."""
    return max(1, ceil(window.wait_s(amount) - ROUNDING))


def _decay_s(count: int, target: int) -> float:
    """How far into a window the share of the one before it, which counted `count`, has sunk to `target`."""
    return WINDOW_S * max(0.0, 1 - target / count)


CountedLimit = Literal["requests", "tokens"]
KINDS: tuple[CountedLimit, ...] = get_args(CountedLimit)


@dataclass(frozen=True, slots=True)
class Charge:
    """An amount to be counted against one limit."""

    kind: CountedLimit
    limit: int
    amount: int
    per: LimitPeriod = "minute"


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, to be counted against every limit of its project, or of whom else the id names, or against none.
    `ticket` is its own."""

    ticket: str
    project_id: str
    minute: int
    elapsed_s: float
    charges: tuple[Charge, ...]
    max_in_flight: int | None
    # Whose time zone its hours and days are of.
    workspace_id: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether the request was counted; `windows` are the counts before it, one for each charge."""

    granted: bool
    in_flight_full: bool
    windows: tuple[Window, ...]


class Counters(Protocol):
    """A store of counts. Its methods raise `LimitsUnavailable` when it cannot be reached."""

    async def take(self, ask: Ask) -> Answer:
        """Counts the request and takes its slot in flight, in one step that no other request can divide."""
        ...

    async def give_back(self, ask: Ask, unused: Mapping[CountedLimit, int]) -> None:
        """Frees the slot and takes `unused` off the windows that counted it, once for each ask that was granted."""
        ...

    async def close(self) -> None: ...


class RemoteCounters(ABC):
    """Counts somewhere else, in steps that are never left half done: one whose request is cancelled goes on."""

    def __init__(self) -> None:
        self._calls: set[asyncio.Task[Any]] = set()

    @abstractmethod
    async def _taken(self, ask: Ask) -> Answer: ...

    @abstractmethod
    async def _given_back(self, ask: Ask, unused: Mapping[CountedLimit, int]) -> None: ...

    async def take(self, ask: Ask) -> Answer:
        taking = self._begin(self._taken(ask))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            # It may still be counted, and only this call knows: undo it from here.
            self._begin(self._undo(taking, ask))
            raise

    async def give_back(self, ask: Ask, unused: Mapping[CountedLimit, int]) -> None:
        await asyncio.shield(self._begin(self._given_back(ask, unused)))

    async def close(self) -> None:
        while self._calls:
            await asyncio.gather(*self._calls, return_exceptions=True)

    async def _undo(self, taking: asyncio.Task[Answer], ask: Ask) -> None:
        await asyncio.wait([taking])
        if taking.cancelled() or taking.exception() is not None or not taking.result().granted:
            return
        try:
            await self._given_back(ask, {charge.kind: charge.amount for charge in ask.charges})
        except LimitsUnavailable as error:
            log.warning("a finished request of project %s is still counted: %s", ask.project_id, error)

    def _begin(self, call: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, done: asyncio.Task[Any]) -> None:
        self._calls.discard(done)
        if not done.cancelled():
            # Retrieved here too: the task that awaited it may have been cancelled.
            done.exception()


class MemoryCounters:
    """The counts of this process alone. Nothing here waits, so no other request can come between."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, int]] = Counter()
        self._in_flight: Counter[str] = Counter()
        self._newest_minute = 0

    async def take(self, ask: Ask) -> Answer:
        self._forget_old_minutes(ask.minute)
        windows = tuple(self._window(ask, charge) for charge in ask.charges)
        full = ask.max_in_flight is not None and self._in_flight[ask.project_id] >= ask.max_in_flight
        fits = all(w.admits(c.amount) for w, c in zip(windows, ask.charges, strict=True))
        if full or not fits:
            return Answer(False, full, windows)
        self._in_flight[ask.project_id] += 1
        for charge in ask.charges:
            self._counts[ask.project_id, charge.kind, ask.minute] += charge.amount
        return Answer(True, False, windows)

    async def give_back(self, ask: Ask, unused: Mapping[CountedLimit, int]) -> None:
        self._in_flight[ask.project_id] -= 1
        if self._in_flight[ask.project_id] <= 0:
            del self._in_flight[ask.project_id]
        for kind, amount in unused.items():
            key = (ask.project_id, kind, ask.minute)
            # In any other minute it would free room that was never taken.
            if key in self._counts:
                self._counts[key] -= amount

    async def close(self) -> None:
        """There is nothing to close."""

    def _window(self, ask: Ask, charge: Charge) -> Window:
        # `get`, since a Counter that is only read must not grow either.
        previous = self._counts.get((ask.project_id, charge.kind, ask.minute - 1), 0)
        current = self._counts.get((ask.project_id, charge.kind, ask.minute), 0)
        return Window(charge.limit, previous, current, ask.elapsed_s)

    def _forget_old_minutes(self, minute: int) -> None:
        if minute > self._newest_minute:
            self._newest_minute = minute
            kept = {key: count for key, count in self._counts.items() if key[2] >= minute - 1}
            self._counts = Counter(kept)
