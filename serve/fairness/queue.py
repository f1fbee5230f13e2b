"""Weighted fair queueing between projects: the one that was served least, for its weight, is next.

The service that a project got is counted in tokens, at first as many as a request may use, and as many as it used
when it has ended (Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024). A project that comes back
after a pause starts level with the least served of the others: a pause earns it no credit.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
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
