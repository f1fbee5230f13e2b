"""Time of an engine that nobody else wants, given to work in small pieces, and no more of it than a share.

A piece begins when nobody has asked for anything for a moment: a client that asks again at once, and every request that
is under way, never meets one. Those that wait take turns in the order in which they came.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from time import monotonic

# A client that goes on by itself asks again sooner.
QUIET_S = 0.5
LOOK_EVERY_S = 0.05
# What may be saved up of the share while nothing is to be done: in a burst of scores the share is passed by that.
MOST_SAVED_S = 1.0


class SpareTime:
    """To be used in one event loop. `quiet_s` tells how long nobody has wanted the engine; `share` is the part of all
    time that pieces may take, measured; of one that takes longer than it should, `MOST_SAVED_S` count at the most."""

    def __init__(
        self,
        quiet_s: Callable[[], float],
        *,
        share: float,
        clock: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._quiet_s = quiet_s
        self._share = share
        self._line = asyncio.Lock()
        # Seconds that may be used; below 0, what was used too much.
        self._saved_s = MOST_SAVED_S if share else 0.0
        self._as_of: float | None = None

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for one piece's time, however long that is: the caller bounds it."""
        async with self._line:
            for _ in count():
                wait_s = self._wait_s()
                if wait_s <= 0:
                    break
                await self._sleep(wait_s)
            began = self._clock()
            try:
                yield
            finally:
                self._save()
                # A piece that waited in the engine, as behind a batch, is no use of it: no debt of hours for that.
                self._saved_s = max(-MOST_SAVED_S, self._saved_s - (self._clock() - began))

    def _wait_s(self) -> float:
        """How long to wait before looking again; 0: begin."""
        self._save()
        if self._saved_s <= 0:
            return max(LOOK_EVERY_S, -self._saved_s / self._share) if self._share else MOST_SAVED_S
        return 0.0 if self._quiet_s() >= QUIET_S else LOOK_EVERY_S

    def _save(self) -> None:
        now = self._clock()
        if self._as_of is not None:
            self._saved_s = min(MOST_SAVED_S, self._saved_s + (now - self._as_of) * self._share)
        self._as_of = now
