"""Counters behind rate limits: a sliding minute as two counts, what a store is asked, and a store in memory."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor
from typing import Literal, Protocol

from billing.caller import WindowState

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


def retry_after_s(window: Window, amount: int) -> int:
    """`Retry-After` in whole seconds, at least one."""
    return max(1, ceil(window.wait_s(amount) - ROUNDING))


def _decay_s(count: int, target: int) -> float:
    """How far into a window the share of the one before it, which counted `count`, has sunk to `target`."""
    return WINDOW_S * max(0.0, 1 - target / count)


CountedLimit = Literal["requests", "tokens"]


@dataclass(frozen=True, slots=True)
class Charge:
    """An amount to be counted against one limit a minute."""

    kind: CountedLimit
    limit: int
    amount: int


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, to be counted against every limit of its project or against none. `ticket` is its own."""

    ticket: str
    project_id: str
    minute: int
    elapsed_s: float
    charges: tuple[Charge, ...]
    max_in_flight: int | None


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
        """Frees the slot and takes `unused` off the minute that counted it, once for each ask that was granted."""
        ...

    async def close(self) -> None: ...


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
