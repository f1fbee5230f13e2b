"""Turns of models that share a GPU, of which one is awake: whose turn it is, and when it ends. It has no clock.

A turn lasts `min_stay_s` at least, so that a GPU does not spend its time on swaps. Then it ends as soon as nobody asks
the model that is awake; and if somebody does, once the model that is next has waited for `longest_wait_s`. Those that
wait are woken in the order in which they began to, so none overtakes another again and again. For requests in the
background alone, such as those of batches, a model is woken where nobody waits for an answer of another; once they have
begun, they are as good as any.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TurnTerms:
    """`finish_s` is what running requests get to end, once their model's turn has; then they are paused."""

    min_stay_s: float
    longest_wait_s: float
    finish_s: float

    def bound_s(self, models: int, swap_s: float) -> float:
        """The longest that a sleeping model waits, from its first request until it is awake: the turn that runs or has
        just begun, and one of each other model, if a swap takes `swap_s`. A request may come `finish_s` earlier."""
        change_s = self.finish_s + swap_s
        first_s = max(self.longest_wait_s, swap_s + self.min_stay_s)
        return first_s + (models - 2) * (change_s + self.min_stay_s) + change_s


@dataclass(frozen=True, slots=True)
class Swap:
    """The model that is to fall asleep, and the one that is to wake up then."""

    asleep: str
    awake: str


@dataclass(slots=True)
class _Model:
    """Its requests: those that wait for its turn, and those that have begun; each in the foreground, and in the
    background. `since`: when it began to wait."""

    waiting: list[int] = field(default_factory=lambda: [0, 0])
    running: list[int] = field(default_factory=lambda: [0, 0])
    since: float | None = None

    @property
    def is_asked(self) -> bool:
        return sum(self.waiting) + sum(self.running) > 0

    @property
    def is_asked_in_front(self) -> bool:
        """Whether somebody waits for its answer."""
        return self.waiting[False] + self.running[False] > 0

    @property
    def is_owed(self) -> bool:
        """Whether it is to be woken while others are asked in front: what has begun has been paid for."""
        return self.is_asked_in_front or self.running[True] > 0


class ModelTurns:
    """Told of each request, and of each swap that is done; `next` is to be asked after that, and when it says so."""

    def __init__(self, models: Iterable[str], terms: TurnTerms, *, awake: str, now: float) -> None:
        self._models = {model: _Model() for model in models}
        self._terms = terms
        self._woke_at = now
        self._finish_by: float | None = None
        self._swap: Swap | None = None
        self.awake = awake

    def may_run(self, model: str) -> bool:
        """Whether its requests may begin."""
        return model == self.awake and self._swap is None and self._finish_by is None

    def come(self, model: str, now: float, *, background: bool = False) -> None:
        """A request waits for the model's turn."""
        self._models[model].waiting[background] += 1
        self._see(model, now)

    def begin(self, model: str, *, background: bool = False) -> None:
        """One that waited runs."""
        self._models[model].waiting[background] -= 1
        self._models[model].running[background] += 1

    def leave(self, model: str, *, has_begun: bool, background: bool = False) -> None:
        """One has ended, or its client has left."""
        one = self._models[model]
        (one.running if has_begun else one.waiting)[background] -= 1
        if not one.is_asked:
            one.since = None

    def next(self, now: float) -> Swap | float | None:
        """The swap to make now; or when to ask again, at the latest; None: not before something happens."""
        if self._swap is not None:
            return None
        first = self._next_in_line()
        if first is None:
            # Whoever waited has left: the turn goes on.
            self._finish_by = None
            return None
        running = self._models[self.awake]
        if self._finish_by is None:
            if now < (end := self._turn_ends(first)):
                return end
            self._finish_by = now + self._terms.finish_s
        if sum(running.running) and now < self._finish_by:
            return self._finish_by
        self._swap, self._finish_by = Swap(self.awake, first), None
        self._see(self.awake, now)
        return self._swap

    def woke(self, now: float) -> None:
        """The swap is done."""
        assert self._swap is not None
        self.awake, self._woke_at, self._swap = self._swap.awake, now, None
        self._models[self.awake].since = None

    def _turn_ends(self, first: str) -> float:
        stay, running, waits = (
            self._woke_at + self._terms.min_stay_s,
            self._models[self.awake],
            self._models[first],
        )
        is_busy = running.is_asked_in_front or (running.is_asked and not waits.is_owed)
        if waits.since is None or not is_busy:
            return stay
        return max(stay, waits.since + self._terms.longest_wait_s)

    def _next_in_line(self) -> str | None:
        in_front = self._models[self.awake].is_asked_in_front
        waiting = [
            (not one.is_owed, one.since, model)
            for model, one in self._models.items()
            if one.since is not None and (one.is_owed or not in_front)
        ]
        # Of two that began at once, the one that is listed first.
        return min(waiting, key=lambda one: one[:2])[2] if waiting else None

    def _see(self, model: str, now: float) -> None:
        """It waits from now on, if it is asked, and neither awake nor waiting already."""
        one, sleeps = self._models[model], model != self.awake or self._swap is not None
        if sleeps and one.is_asked and one.since is None:
            one.since = now
