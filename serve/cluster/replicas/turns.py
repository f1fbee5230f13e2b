"""Who is next at an engine that would work on everything at once: payers in turn, by what each has asked for."""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


class NoTurn(Exception):
    """As much waits as may."""


@dataclass(eq=False, slots=True)
class _Waiting:
    place: int
    number: int
    payer: str
    size: int
    begins: asyncio.Future[None]

    def __lt__(self, other: _Waiting) -> bool:
        return (self.place, self.number) < (other.place, other.number)


class Turns:
    """Fair queueing: a place is where the payer's work before it ends, and none is before what has begun already, so
    nothing is overtaken forever. `room`: the sizes that run at once, or a single larger one. `most`: how
    many run and wait; above it the payer with the most waiting loses the last of them.
    """

    def __init__(self, *, room: int, most: int) -> None:
        self._room = room
        self._most = most
        self._waiting: list[_Waiting] = []
        self._running = 0
        self._running_size = 0
        self._began = 0
        self._number = 0
        self._ahead: dict[str, int] = {}

    @asynccontextmanager
    async def turn(self, payer: str, size: int) -> AsyncIterator[None]:
        """Raises `NoTurn`, at once or when it has to give way to who has less."""
        self._make_room(payer)
        mine = self._queued(payer, size)
        try:
            self._begin_what_fits()
            await mine.begins
            yield
        finally:
            self._leave(mine)

    def _queued(self, payer: str, size: int) -> _Waiting:
        place = max(self._began, self._ahead.get(payer, 0))
        ahead = {who: at for who, at in self._ahead.items() if at > self._began}
        self._ahead = {**ahead, payer: place + size + 1}
        self._number += 1
        mine = _Waiting(place, self._number, payer, size, asyncio.get_running_loop().create_future())
        insort(self._waiting, mine)
        return mine

    def _make_room(self, payer: str) -> None:
        if self._running + len(self._waiting) < self._most:
            return
        # Who has left already, but has not been told, is no waiter.
        waiting = [one for one in self._waiting if not one.begins.done()]
        counts = Counter(one.payer for one in waiting)
        for most_of, most in counts.most_common(1):
            if most > counts[payer] + 1:
                last = max(one for one in waiting if one.payer == most_of)
                self._waiting.remove(last)
                last.begins.set_exception(NoTurn())
                return
        raise NoTurn

    def _begin_what_fits(self) -> None:
        while self._waiting and (
            not self._running or self._running_size + self._waiting[0].size <= self._room
        ):
            first = self._waiting.pop(0)
            if first.begins.done():
                continue
            self._running += 1
            self._running_size += first.size
            self._began = max(self._began, first.place)
            first.begins.set_result(None)

    def _leave(self, mine: _Waiting) -> None:
        """Whatever became of it."""
        if mine in self._waiting:
            self._waiting.remove(mine)
        elif mine.begins.done() and not mine.begins.cancelled() and mine.begins.exception() is None:
            self._running -= 1
            self._running_size -= mine.size
        self._begin_what_fits()
