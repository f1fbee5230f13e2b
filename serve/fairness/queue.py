"""Fair queue of the requests of projects, and what each project holds of the places that they share.

The project that was served least, for its weight, is next. Its service is counted in tokens, at first as many as a
request may use, and as many as it used when it has ended (Sheng et al., "Fairness in Serving Large Language Models",
OSDI 2024). A project that comes back after an absence starts level with the least served.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from models.engine import EngineRequest


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of one request: `places` it takes up at once (one a choice), and the most `tokens` it may use. One in
    the `background` is not begun while any other waits; one that `fills`, of these, may have all places that the others
    leave, and does not wait for ever."""

    project_id: str
    weight: int
    places: int
    tokens: int
    background: bool = False
    fills: bool = False


@dataclass(slots=True, eq=False)
class Place:
    """The places that one request holds. While it is paused others have them; `paused` is its entry in the queue."""

    claim: Claim
    # The order of asking, over all projects.
    number: int
    # In the background, and one of those that are not taken back as soon as somebody else wants a place.
    kept: bool
    paused: Waiting | None = None


# A project's requests with priority weigh so many times what its others do.
PRIORITY = 16
# None: there is no room at all.
Turn = asyncio.Future[Place | None]


@dataclass(slots=True, eq=False)
class Waiting:
    """One request in the queue: a new one has a `turn`, one that is paused its `place`. `since` is when it began to
    wait."""

    claim: Claim
    number: int
    since: float
    turn: Turn | None = None
    place: Place | None = None


@dataclass(slots=True, eq=False)
class _Project:
    served: float
    weight: int
    background: bool = False
    running: int = 0
    # By identity, in the order of beginning: what runs, and what waits.
    held: OrderedDict[int, Place] = field(default_factory=OrderedDict)
    waiting: OrderedDict[int, Waiting] = field(default_factory=OrderedDict)
    # Of those that wait, the ones that are paused: the first.
    paused: int = 0

    @property
    def turn(self) -> tuple[float, int, int]:
        """The least is next; among equals the one that asks for less, then the one that asked first."""
        return self.served, self.running + len(self.waiting), self.first.number

    @property
    def first(self) -> Waiting:
        return next(iter(self.waiting.values()))

    @property
    def new(self) -> int:
        """The number of those that wait to begin."""
        return len(self.waiting) - self.paused

    def above(self, share: int) -> Iterator[Place]:
        """Places of which it keeps `share` without them, the newest first."""
        left = self.running - share
        for place in reversed(self.held.values()):
            if place.claim.places <= left:
                left -= place.claim.places
                yield place


class FairQueue:
    """Requests that wait, and the places that each project holds. A request's work grows with the active projects."""

    def __init__(self) -> None:
        self._projects: dict[str, _Project] = {}
        self._waiting = 0
        # Of these, in the foreground.
        self._ahead = 0
        self._paused = 0
        self._asked = 0
        self.running = 0
        # Of these, in the background; and of those, the ones that are kept.
        self.background_running = 0
        self.kept_running = 0
        # What the last project to go had been served: where the next one starts when the queue is empty.
        self._floor = 0.0
        # Projects in the foreground, and their weights.
        self._foreground = 0
        self._weight = 0

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    @property
    def has_foreground_waiting(self) -> bool:
        return self._ahead > 0

    def __len__(self) -> int:
        """The number of those that wait to begin."""
        return self._waiting - self._paused

    def running_of(self, project_id: str) -> int:
        """The places that a project holds."""
        project = self._projects.get(project_id)
        return project.running if project else 0

    def is_alone(self, claim: Claim) -> bool:
        """Whether no other project has a request."""
        return len(self._projects) == (claim.project_id in self._projects)

    def share_of(self, claim: Claim, room: int) -> int:
        """The places of `room` that the claim's project is owed beside the others that have requests."""
        return _share(room, claim.weight, *self._all_with(claim))

    def loans(self, claim: Claim, room: int, *, background: int) -> Iterator[Place]:
        """Places that others hold beyond their shares, those of the project furthest above its own first. Those of the
        background come before; of the ones that are kept, `background` are left."""
        number, weight = self._all_with(claim)
        borrowed: list[tuple[bool, float, Place]] = []
        for project_id, project in self._projects.items():
            if project_id == claim.project_id:
                continue
            share = 0 if project.background else _share(room, project.weight, number, weight)
            above = project.running - share
            for place in project.above(share):
                borrowed.append((project.background, above / project.weight, place))
                above -= place.claim.places
        left = self.kept_running - background
        for _, _, place in sorted(borrowed, key=lambda one: one[:2], reverse=True):
            if place.kept and place.claim.places > left:
                continue
            left -= place.claim.places if place.kept else 0
            yield place

    def push(self, claim: Claim, turn: Turn, now: float) -> Waiting:
        """To the end of its project's line."""
        entry = Waiting(claim, self._next_number(), now, turn)
        self._project(claim).waiting[id(entry)] = entry
        self._count_waiting(entry, 1)
        return entry

    def remove(self, entry: Waiting) -> bool:
        """Take it out. False if it was not waiting any more."""
        project = self._projects.get(entry.claim.project_id)
        if project is None or project.waiting.pop(id(entry), None) is None:
            return False
        self._count_waiting(entry, -1)
        self._forget_if_idle(entry.claim.project_id, project)
        return True

    def next(self, may_run: Callable[[Waiting], bool]) -> Waiting | None:
        """The first request of the project that was served least, of those whose first request `may_run`. It stays in
        the queue."""
        best: _Project | None = None
        for project in self._projects.values():
            if not project.waiting or (best is not None and project.turn >= best.turn):
                continue
            if may_run(project.first):
                best = project
        return None if best is None else best.first

    def newest_of_the_longest(self) -> Waiting:
        """The last request of the project with the longest line for its weight; of those in the background first."""
        waiting = [project for project in self._projects.values() if project.new]
        longest = max(waiting, key=lambda project: (project.background, project.new / project.weight))
        return next(reversed(longest.waiting.values()))

    def line_of(self, claim: Claim) -> float:
        """The length of the line of the claim's project, for its weight."""
        project = self._projects.get(claim.project_id)
        return project.new / claim.weight if project else 0.0

    def begin(self, claim: Claim) -> Place:
        """The request runs, and is charged all the tokens that it may use."""
        place = Place(claim, self._next_number(), kept=claim.background and not claim.fills)
        self._run(place)
        return place

    def start(self, entry: Waiting, *, kept: bool = False) -> Place:
        """It waits no longer, and runs. `kept`: though it fills what others leave."""
        claim = entry.claim
        place = entry.place or Place(claim, entry.number, kept=claim.background and not claim.fills)
        place.kept |= kept
        self._run(place)
        self.remove(entry)
        place.paused = None
        return place

    def pause(self, place: Place, now: float) -> None:
        """It waits again, before the others of its project, and is charged nothing until it goes on."""
        project = self._stop(place, used_tokens=0)
        entry = place.paused = Waiting(place.claim, place.number, now, place=place)
        project.waiting[id(entry)] = entry
        project.waiting.move_to_end(id(entry), last=False)
        self._count_waiting(entry, 1)

    def end(self, place: Place, used_tokens: int) -> None:
        """It has ended, and used this many tokens."""
        project = self._projects[place.claim.project_id]
        if place.paused is None:
            self._stop(place, used_tokens)
        else:
            project.served += used_tokens / project.weight
            self.remove(place.paused)
        self._forget_if_idle(place.claim.project_id, project)

    def _all_with(self, claim: Claim) -> tuple[int, int]:
        """The number of projects that have requests, and their weight, once the claim's is one of them."""
        project = self._projects.get(claim.project_id)
        if project is None:
            return self._foreground + 1, self._weight + claim.weight
        return self._foreground, self._weight + claim.weight - project.weight

    def _next_number(self) -> int:
        self._asked += 1
        return self._asked

    def _run(self, place: Place) -> None:
        project = self._project(place.claim)
        project.held[id(place)] = place
        self._count_running(project, place, 1)
        project.served += place.claim.tokens / project.weight

    def _stop(self, place: Place, used_tokens: int) -> _Project:
        project = self._projects[place.claim.project_id]
        del project.held[id(place)]
        self._count_running(project, place, -1)
        project.served += (used_tokens - place.claim.tokens) / project.weight
        return project

    def _count_running(self, project: _Project, place: Place, sign: int) -> None:
        change = sign * place.claim.places
        project.running += change
        self.running += change
        self.background_running += change if place.claim.background else 0
        self.kept_running += change if place.kept else 0

    def _count_waiting(self, entry: Waiting, sign: int) -> None:
        self._waiting += sign
        self._ahead += 0 if entry.claim.background else sign
        if entry.place is not None:
            self._paused += sign
            self._projects[entry.claim.project_id].paused += sign

    def _project(self, claim: Claim) -> _Project:
        project = self._projects.get(claim.project_id)
        if project is None:
            least = min((each.served for each in self._projects.values()), default=self._floor)
            project = self._projects[claim.project_id] = _Project(least, 0, claim.background)
            self._foreground += not claim.background
        # An operator may have changed it.
        self._weight += 0 if claim.background else claim.weight - project.weight
        project.weight = claim.weight
        return project

    def _forget_if_idle(self, project_id: str, project: _Project) -> None:
        if project_id in self._projects and not project.running and not project.waiting:
            del self._projects[project_id]
            self._foreground -= not project.background
            self._weight -= 0 if project.background else project.weight
            self._floor = project.served if not self._projects else self._floor


def claim_of(request: EngineRequest, *, places: int) -> Claim:
    """`places`, in the name of its project. Its tokens are those that it may generate: those of the prompt are
    known when it has ended."""
    tokens, project_id = request.max_tokens * request.sequences, request.project_id
    # Each apart from what its project's other requests are served.
    if request.background:
        return Claim(f"{project_id}:background", 1, places, tokens, background=True)
    if request.tier == "flex":
        weight = request.project_weight
        return Claim(f"{project_id}:flex", weight, places, tokens, background=True, fills=True)
    if request.tier == "priority":
        return Claim(f"{project_id}:priority", PRIORITY * request.project_weight, places, tokens)
    return Claim(project_id, request.project_weight, places, tokens)


def _share(room: int, weight: int, projects: int, of_weight: int) -> int:
    """One place for each project, and the rest by weight: together no more than there are, if there are so many."""
    return 1 + max(0, room - projects) * weight // of_weight
