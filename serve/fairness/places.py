"""Places that projects share: a request takes some, or waits until its project's turn comes.

Each project that has requests is owed an equal share of the places, by its weight (max-min fairness), and may borrow
what nobody else waits for. Where running requests can be paused, borrowed places are taken back for a project that is
owed them: the newest request of the project furthest above its share is paused, and waits at the head of its
project's line until it can go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from serve.fairness.queue import Claim, FairQueue, Place, Turn, Waiting

# So long after the last request that somebody waits for, the background has all places to itself; until then one of so
# many, and one at least: enough to get on, and few enough that the others hardly notice.
QUIET_S = 2.0
PLACES_FOR_ONE_IN_BACKGROUND = 32
# So long may one wait that fills what others leave: then it is owed one of the places for the background.
LONGEST_LEFT_S = 10.0


class QueueFull(Exception):
    """As many requests wait as may wait, and no other project has a longer line than this one."""


class FairPlaces:
    """To be used in one event loop. `room` returns how many places there are now; call `let_in` when that changes.

    `max_waiting` requests may wait, -1 for any number. `on_pause` is told of each place that is paused and that goes on
    (`Place.paused`); None: what runs cannot be paused, so a project that is owed a place waits for one to end.
    A project that is alone may have so many requests `ahead` of the places: who runs them begins one of these sooner
    than it could be told of a place that has become free.
    """

    def __init__(
        self,
        room: Callable[[], int],
        *,
        max_waiting: int = -1,
        on_pause: Callable[[Place], None] | None = None,
        ahead: int = 0,
    ) -> None:
        self._room = room
        self._ahead = ahead
        self.max_waiting = max_waiting
        self._on_pause = on_pause
        self._queue = FairQueue()
        # When one in the foreground last came or went.
        self._last_seen = float("-inf")

    def __len__(self) -> int:
        """The number of those that wait to begin."""
        return len(self._queue)

    async def enter(self, claim: Claim) -> Place | None:
        """Take places, at once or when there are some. None, and raises, as `wait`."""
        return self.try_enter(claim) or await self.wait(claim)

    def try_enter(self, claim: Claim) -> Place | None:
        """Take places without waiting, unless a waiting request is entitled to them."""
        self._see(claim)
        room = self._room()
        is_next = self._queue.is_empty or not (claim.background or self._queue.has_foreground_waiting)
        if is_next:
            may_enter = self._may_borrow(claim, room)
        else:
            may_enter = self._is_owed(claim, room) and self._next_owed(room) is None
        if not may_enter or not self._make_room(claim, room):
            return None
        return self._queue.begin(claim)

    async def wait(self, claim: Claim) -> Place | None:
        """Wait for places and take them. None once there is no room at all.

        Raises `QueueFull`, at once or, when another project's request pushes this one out, later.
        """
        self._evict_if_full(claim)
        turn: Turn = asyncio.get_running_loop().create_future()
        entry = self._queue.push(claim, turn, _now())
        try:
            return await turn
        except asyncio.CancelledError:
            if self._queue.remove(entry):
                # It may have been this one that the others waited behind.
                self.let_in()
            elif place := _place_of(turn):
                self.leave(place, used_tokens=0)
            raise

    def leave(self, place: Place, *, used_tokens: int) -> None:
        """Give the places back; `used_tokens` is what the request used."""
        self._see(place.claim)
        self._queue.end(place, used_tokens)
        self.let_in()

    def let_in(self) -> None:
        """Give free places to waiting requests. Without any room, all of them get None."""
        room = self._room()
        while entry := self._next(room):
            if entry.turn is not None and entry.turn.done():
                # Cancelled, and not yet gone.
                self._queue.remove(entry)
            elif room == 0:
                self._tell_of_no_room(entry)
            elif self._make_room(entry.claim, room, entry):
                self._start(entry, kept=self._is_due(entry, room))
            else:
                # It is this one's turn: smaller requests that would fit must not keep it waiting for ever.
                return

    def _start(self, entry: Waiting, *, kept: bool = False) -> None:
        place = self._queue.start(entry, kept=kept)
        if entry.turn is not None:
            entry.turn.set_result(place)
        elif self._on_pause is not None:
            self._on_pause(place)

    def _tell_of_no_room(self, entry: Waiting) -> None:
        if entry.turn is None:
            # It ends by itself.
            self._start(entry)
        else:
            self._queue.remove(entry)
            entry.turn.set_result(None)

    def _next(self, room: int) -> Waiting | None:
        owed = self._next_due(room) or self._next_owed(room)
        return owed or self._queue.next(lambda entry: self._may_borrow(entry.claim, room))

    def _next_due(self, room: int) -> Waiting | None:
        """One that is due, if there is room or can be: nobody waits behind it."""
        entry = self._queue.next(lambda entry: self._is_due(entry, room))
        if entry is None or self._missing(entry.claim, room) <= 0:
            return entry
        return entry if self._on_pause is not None and self._borrowed(entry.claim, room) else None

    def _is_due(self, entry: Waiting, room: int) -> bool:
        """Whether it fills what others leave, has waited for that as long as it may, and fits the places that are kept
        for the background."""
        is_late = entry.claim.fills and _now() - entry.since >= LONGEST_LEFT_S
        return is_late and self._queue.kept_running + entry.claim.places <= _for_the_background(room)

    def _next_owed(self, room: int) -> Waiting | None:
        return self._queue.next(lambda entry: self._is_owed(entry.claim, room))

    def _is_owed(self, claim: Claim, room: int) -> bool:
        """Whether its project holds less than its share: always, where it holds nothing."""
        if claim.background:
            return False
        held = self._queue.running_of(claim.project_id)
        return not held or held + claim.places <= self._queue.share_of(claim, self._in_front(room))

    def _in_front(self, room: int) -> int:
        """The places of `room` that are shared by those who are not in the background."""
        return room - min(self._queue.kept_running, _for_the_background(room))

    def _may_borrow(self, claim: Claim, room: int) -> bool:
        if not claim.background or not room:
            return True
        if self._queue.has_foreground_waiting:
            return False
        if claim.fills or not self._is_busy():
            return True
        return self._queue.kept_running < _for_the_background(room)

    def _make_room(self, claim: Claim, room: int, entry: Waiting | None = None) -> bool:
        """Whether there is, once what others have borrowed is taken back for one that is owed it."""
        # A request with more choices than there are places runs alone.
        if self._missing(claim, room) <= 0 or (room > 0 and not self._queue.running):
            return True
        is_due = entry is not None and self._is_due(entry, room)
        if self._on_pause is None or (claim.background and not is_due):
            return False
        # What fills gives way to all others.
        paused = self._borrowed(claim, room, filling=not (is_due or self._is_owed(claim, room)))
        for place in paused:
            self._queue.pause(place, _now())
            self._on_pause(place)
        return bool(paused)

    def _missing(self, claim: Claim, room: int) -> int:
        most = room + self._ahead if room and self._queue.is_alone(claim) else room
        return claim.places - (most - self._queue.running)

    def _borrowed(self, claim: Claim, room: int, *, filling: bool = False) -> list[Place]:
        """What has at least the places that are missing; nothing, where fewer can be taken back. `filling`: of what
        fills alone."""
        found: list[Place] = []
        missing = self._missing(claim, room)
        # One in the background lessens what the others share.
        shared = self._in_front(room) - (claim.places if claim.background else 0)
        for place in self._queue.loans(claim, shared, background=_for_the_background(room)):
            if filling and (place.kept or not place.claim.fills):
                continue
            found.append(place)
            missing -= place.claim.places
            if missing <= 0:
                return found
        return []

    def _see(self, claim: Claim) -> None:
        if not claim.background:
            self._last_seen = _now()

    def quiet_s(self) -> float:
        """Seconds since the last request that somebody waited for; 0 while there is one."""
        in_front = self._queue.running - self._queue.background_running
        return 0.0 if in_front > 0 or self._queue.has_foreground_waiting else _now() - self._last_seen

    def _is_busy(self) -> bool:
        """Whether there are requests that somebody waits for, or were a moment ago."""
        return self.quiet_s() < QUIET_S

    def _evict_if_full(self, claim: Claim) -> None:
        """At the bound, the project with the longest line loses its newest request: never one that asks for little."""
        if not 0 <= self.max_waiting <= len(self._queue):
            return
        if not len(self._queue):
            raise QueueFull
        newest = self._queue.newest_of_the_longest()
        is_refused = claim.background and not (claim.fills and newest.claim.background)
        if is_refused or not self._is_before(claim, newest.claim):
            raise QueueFull
        self._queue.remove(newest)
        if newest.turn is not None:
            newest.turn.set_exception(QueueFull())

    def _is_before(self, claim: Claim, newest: Claim) -> bool:
        """Whether the project of `newest` would still have the longer line."""
        longest, own = self._queue.line_of(newest), self._queue.line_of(claim)
        return (newest.background and not claim.background) or longest > own + 1 / claim.weight


def _for_the_background(room: int) -> int:
    return max(1, room // PLACES_FOR_ONE_IN_BACKGROUND)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _place_of(turn: Turn) -> Place | None:
    return turn.result() if turn.done() and not turn.cancelled() and turn.exception() is None else None
