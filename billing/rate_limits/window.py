"""The arithmetic of a rate limit over a sliding minute, as pure functions of two counters and a clock.

The estimate is the sliding window counter: all of this minute's count, and of the last minute's count the
share that the last sixty seconds still cover.
"""

from dataclasses import dataclass
from math import ceil, floor

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
