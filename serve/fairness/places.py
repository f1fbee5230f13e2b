"""Places that projects share, and their fair queue: a request takes some, or waits until its project's turn comes.

What one project may hold follows from what is free (the dynamic thresholds of Choudhury and Hahne, 1998): it gets a
share of all places, and each further project makes what everybody may hold smaller, so that some places are always
free for a project that comes next. Without that, its first request would wait until a long one of another ends.

The project that was served least, for its weight, is next. Its service is counted in tokens, at first as many as a
request may use, and as many as it used when it has ended (Sheng et al., "Fairness in Serving Large Language Models",
OSDI 2024). A project that comes back after a pause starts level with the least served: a pause earns it no credit.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Generic, TypeVar

from models.engine import EngineRequest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of one request: `places` it takes up at once (one a choice), and the most `tokens` it may use. One in
    the `background` is not begun while any other waits."""

    project_id: str
    weight: int
    places: int
    tokens: int
    background: bool = False


@dataclass(slots=True, eq=False)
class Waiting(Generic[T]):
    """One request in the queue."""

    claim: Claim
    item: T
    # The order of asking, over all projects.
    number: int


@dataclass(slots=True, eq=False)
class _Project(Generic[T]):
    served: float
    weight: int
    background: bool = False
    running: int = 0
    # By identity, in the order of asking.
    waiting: OrderedDict[int, Waiting[T]] = field(default_factory=OrderedDict)

    @property
    def turn(self) -> tuple[float, int, int]:
        """The least is next; among equals the one that asks for less, then the one that asked first."""
        return self.served, self.running + len(self.waiting), self.first.number

    @property
    def first(self) -> Waiting[T]:
        return next(iter(self.waiting.values()))

    @property
    def is_idle(self) -> bool:
        return not self.running and not self.waiting


class FairQueue(Generic[T]):
    """Requests that wait, and the places that each project holds. A request's work grows with the active projects."""

    def __init__(self) -> None:
        self._projects: dict[str, _Project[T]] = {}
        self._waiting = 0
        # Of these, in the foreground.
        self._ahead = 0
        self._asked = 0
        self.running = 0
        # Of these, in the background.
        self.background_running = 0
        # What the last project to go had been served: where the next one starts when the queue is empty.
        self._floor = 0.0

    def __len__(self) -> int:
        return self._waiting

    @property
    def waiting_ahead(self) -> int:
        """The number of those that wait in the foreground."""
        return self._ahead

    def running_of(self, project_id: str) -> int:
        """The places that a project holds."""
        project = self._projects.get(project_id)
        return project.running if project else 0

    def push(self, claim: Claim, item: T) -> Waiting[T]:
        """To the end of its project's line."""
        self._asked += 1
        entry = Waiting(claim, item, self._asked)
        self._project(claim).waiting[id(entry)] = entry
        self._waiting += 1
        self._ahead += not claim.background
        return entry

    def remove(self, entry: Waiting[T]) -> bool:
        """Take it out. False if it was not waiting any more."""
        project = self._projects.get(entry.claim.project_id)
        if project is None or project.waiting.pop(id(entry), None) is None:
            return False
        self._waiting -= 1
        self._ahead -= not entry.claim.background
        self._forget_if_idle(entry.claim.project_id, project)
        return True

    def next(self, may_run: Callable[[Claim], bool]) -> Waiting[T] | None:
        """The first request of the project that was served least, of those whose first request `may_run`.
        Those in the background only if no other waits. It stays in the queue."""
        best: _Project[T] | None = None
        for project in self._projects.values():
            if not project.waiting or (project.background and self._ahead):
                continue
            if best is not None and project.turn >= best.turn:
                continue
            if may_run(project.first.claim):
                best = project
        return None if best is None else best.first

    def newest_of_the_longest(self) -> Waiting[T]:
        """The last request of the project with the longest line for its weight; of those in the background first."""
        waiting = [project for project in self._projects.values() if project.waiting]
        longest = max(
            waiting, key=lambda project: (project.background, len(project.waiting) / project.weight)
        )
        return next(reversed(longest.waiting.values()))

    def line_of(self, claim: Claim) -> float:
        """The length of the line of the claim's project, for its weight."""
        project = self._projects.get(claim.project_id)
        return len(project.waiting) / claim.weight if project else 0.0

    def begin(self, claim: Claim) -> None:
        """The request runs, and is charged all the tokens that it may use."""
        project = self._project(claim)
        project.running += claim.places
        self._count(claim, claim.places)
        project.served += claim.tokens / project.weight

    def start(self, entry: Waiting[T]) -> None:
        """It waits no longer, and runs."""
        self.begin(entry.claim)
        self.remove(entry)

    def end(self, claim: Claim, used_tokens: int) -> None:
        """It has ended, and used this many tokens."""
        project = self._projects[claim.project_id]
        project.running -= claim.places
        self._count(claim, -claim.places)
        project.served += (used_tokens - claim.tokens) / project.weight
        self._forget_if_idle(claim.project_id, project)

    def _count(self, claim: Claim, places: int) -> None:
        self.running += places
        self.background_running += places if claim.background else 0

    def _project(self, claim: Claim) -> _Project[T]:
        project = self._projects.get(claim.project_id)
        if project is None:
            least = min((each.served for each in self._projects.values()), default=self._floor)
            project = self._projects[claim.project_id] = _Project(least, claim.weight, claim.background)
        # An operator may have changed it.
        project.weight = claim.weight
        return project

    def _forget_if_idle(self, project_id: str, project: _Project[T]) -> None:
        if project.is_idle:
            del self._projects[project_id]
            self._floor = project.served if not self._projects else self._floor


def claim_of(request: EngineRequest, *, places: int) -> Claim:
    """`places`, in the name of its project. Its tokens are those that it may generate: those of the prompt are
    known when it has ended."""
    tokens = request.max_tokens * request.sequences
    if request.background:
        # Apart from what its project's other requests are served.
        return Claim(f"{request.project_id}:background", 1, places, tokens, background=True)
    return Claim(request.project_id, request.project_weight, places, tokens)


Turn = asyncio.Future[bool]
# So long after its last request ended, a project still counts as one that may come back at any moment.
ACTIVE_S = 10.0
# So long after the last request that somebody waits for, the background has all places to itself; until then one of so
# many, and one at least: enough to get on, and few enough that the others hardly notice.
QUIET_S = 2.0
PLACES_FOR_ONE_IN_BACKGROUND = 32


@dataclass(frozen=True, slots=True)
class Shares:
    """The part of all places (0 to 1) that one project of weight 1 may hold: `contended` where others were active."""

    alone: float
    contended: float

    def per_free_place(self, *, contended: bool) -> float:
        """The places that it may hold for each free one."""
        share = self.contended if contended else self.alone
        return share / (1 - share) if share < 1 else float("inf")


class QueueFull(Exception):
    """As many requests wait as may wait, and no other project has a longer line than this one."""


class FairPlaces:
    """To be used in one event loop. `room` returns how many places there are now; call `let_in` when that changes.

    `max_waiting` requests may wait, -1 for any number.
    """

    def __init__(self, room: Callable[[], int], *, shares: Shares, max_waiting: int = -1) -> None:
        self._room = room
        self._shares = shares
        self.max_waiting = max_waiting
        self._queue: FairQueue[Turn] = FairQueue()
        # Projects by when they were last here, the latest last.
        self._seen: OrderedDict[str, float] = OrderedDict()
        self._last_seen = float("-inf")

    def __len__(self) -> int:
        """The number of those that wait."""
        return len(self._queue)

    async def enter(self, claim: Claim) -> bool:
        """Take places, at once or when there are some. False, and raises, as `wait`."""
        return self.try_enter(claim) or await self.wait(claim)

    def try_enter(self, claim: Claim) -> bool:
        """Take places without waiting, unless a waiting request is entitled to them."""
        self._see(claim)
        room = self._room()
        if claim.background and self._queue.waiting_ahead:
            return False
        if not self._may_hold_more(claim, room) or not self._is_enough(claim, room):
            return False
        if len(self._queue) and self._next(room) is not None:
            return False
        self._queue.begin(claim)
        return True

    async def wait(self, claim: Claim) -> bool:
        """Wait for places and take them. False once there is no room at all.

        Raises `QueueFull`, at once or, when another project's request pushes this one out, later.
        """
        self._evict_if_full(claim)
        turn: Turn = asyncio.get_running_loop().create_future()
        entry = self._queue.push(claim, turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if self._queue.remove(entry):
                # It may have been this one that the others waited behind.
                self.let_in()
            elif _was_let_in(turn):
                self.leave(claim, used_tokens=0)
            raise

    def leave(self, claim: Claim, *, used_tokens: int) -> None:
        """Give the places back; `used_tokens` is what the request used."""
        self._see(claim)
        self._queue.end(claim, used_tokens)
        self.let_in()

    def let_in(self) -> None:
        """Give free places to waiting requests. Without any room, all of them get False."""
        room = self._room()
        while entry := self._next(room):
            if entry.item.done():
                # Cancelled, and not yet gone.
                self._queue.remove(entry)
            elif room == 0:
                self._queue.remove(entry)
                entry.item.set_result(False)
            elif self._is_enough(entry.claim, room):
                self._queue.start(entry)
                entry.item.set_result(True)
            else:
                # It is this one's turn: smaller requests that would fit must not keep it waiting for ever.
                return

    def _next(self, room: int) -> Waiting[Turn] | None:
        return self._queue.next(lambda claim: room == 0 or self._may_hold_more(claim, room))

    def _may_hold_more(self, claim: Claim, room: int) -> bool:
        if claim.background and self._is_busy():
            most = max(1, room // PLACES_FOR_ONE_IN_BACKGROUND)
            return self._queue.background_running < most
        free = room - self._queue.running
        per_free_place = self._shares.per_free_place(contended=len(self._seen) > 1)
        return self._queue.running_of(claim.project_id) < per_free_place * claim.weight * free

    def _see(self, claim: Claim) -> None:
        if claim.background:
            # Nobody's places become fewer for it.
            return
        now = self._last_seen = _now()
        self._seen[claim.project_id] = now
        self._seen.move_to_end(claim.project_id)
        long_ago = takewhile(lambda item: item[1] <= now - ACTIVE_S, self._seen.items())
        # One that still holds places is as active as it was.
        for project_id in [one for one, _ in long_ago if not self._queue.running_of(one)]:
            del self._seen[project_id]

    def _is_busy(self) -> bool:
        """Whether there are requests that somebody waits for, or were a moment ago."""
        in_front = self._queue.running - self._queue.background_running
        return in_front > 0 or _now() - self._last_seen < QUIET_S

    def _is_enough(self, claim: Claim, room: int) -> bool:
        # A request with more choices than there are places runs alone.
        return claim.places <= room - self._queue.running or (room > 0 and not self._queue.running)

    def _evict_if_full(self, claim: Claim) -> None:
        """At the bound, the project with the longest line loses its newest request: never one that asks for little."""
        if not 0 <= self.max_waiting <= len(self._queue):
            return
        if not len(self._queue):
            raise QueueFull
        newest = self._queue.newest_of_the_longest()
        if claim.background or not self._is_before(claim, newest.claim):
            raise QueueFull
        self._queue.remove(newest)
        newest.item.set_exception(QueueFull())

    def _is_before(self, claim: Claim, newest: Claim) -> bool:
        """Whether the project of `newest` would still have the longer line."""
        longest, own = self._queue.line_of(newest), self._queue.line_of(claim)
        return newest.background or longest > own + 1 / claim.weight


def _now() -> float:
    return asyncio.get_running_loop().time()


def _was_let_in(turn: Turn) -> bool:
    return turn.done() and not turn.cancelled() and turn.exception() is None and turn.result()
