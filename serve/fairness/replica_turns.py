"""Turns in a replica, where all ingress processes meet: of requests at its engine, and of grammars at its trials."""

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from time import perf_counter
from typing import Protocol

from models.engine import EngineChunk, EngineFault, EngineRequest
from models.errors import GrammarTrialsBusy
from serve.fairness.places import FairPlaces
from serve.fairness.queue import Claim, Place, claim_of

Generate = Callable[[EngineRequest], AsyncGenerator[EngineChunk | EngineFault, None]]


class TurnObserver(Protocol):
    """Told of each request: it waits, and then gives up or begins; one that has begun ends."""

    def wait(self) -> None: ...

    def give_up(self) -> None: ...

    def begin(self, waited_s: float) -> None: ...

    def end(self) -> None: ...


# An eighth of an engine's places: its scheduler fills a place in the step after the last one ended, where a request
# that waits here would be rendered first.
AHEAD = 8


class FairGeneration:
    """An engine that runs `places` sequences at once. A request that waits sends nothing, so its client can give up."""

    def __init__(
        self,
        generate: Generate,
        *,
        places: int,
        pause: Callable[[EngineRequest, bool], None] | None = None,
        observer: TurnObserver | None = None,
    ) -> None:
        """`pause` is that of `models.engine.ReplicaEngine`; None: the engine cannot."""
        self._generate = generate
        self._pause = pause
        self._observer = observer
        self._all = places
        self._running: dict[Place, EngineRequest] = {}
        can_pause = pause is not None
        self._places = FairPlaces(
            lambda: places,
            on_pause=self._on_pause if can_pause else None,
            ahead=places // AHEAD if can_pause else 0,
        )

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        """Yield what the engine does, once there is room for the request."""
        most = request.most_choices(self._all)
        if request.choices > most:
            yield EngineFault("rejected", f"at most {most} choices of a prompt with this model", "n")
            return
        place = await self._enter(claim_of(request, places=request.places(self._all)))
        used_tokens = 0
        self._running[place] = request
        try:
            if place.paused:
                self._on_pause(place)
            async with aclosing(self._generate(request)) as items:
                async for item in items:
                    if isinstance(item, EngineChunk):
                        used_tokens = item.usage.total_tokens
                    yield item
        finally:
            del self._running[place]
            self._places.leave(place, used_tokens=used_tokens)
            if self._observer is not None:
                self._observer.end()

    def quiet_s(self) -> float:
        """As `FairPlaces.quiet_s`."""
        return self._places.quiet_s()

    def _on_pause(self, place: Place) -> None:
        request = self._running.get(place)
        if request is not None and self._pause is not None:
            self._pause(request, place.paused is not None)

    async def _enter(self, claim: Claim) -> Place:
        observer = self._observer
        if observer is None:
            return _taken(await self._places.enter(claim))
        asked = perf_counter()
        observer.wait()
        try:
            place = _taken(await self._places.enter(claim))
        except BaseException:
            observer.give_up()
            raise
        observer.begin(perf_counter() - asked)
        return place


def _taken(place: Place | None) -> Place:
    assert place is not None, "an engine always has places"
    return place


# Of one project: so many of its grammars may wait, each for half a second at most.
MAX_WAITING = 32
# The most that a trial counts for: the first one's has the start of the helper in it, which serves all.
LONGEST_MS = 1000


class FairTrials:
    """The `models.grammar.trials.TrialTurns` of a replica, by the queue in which requests wait for its engine."""

    def __init__(self) -> None:
        self._place = FairPlaces(lambda: 1)
        self._waiting: Counter[str] = Counter()

    @asynccontextmanager
    async def turn(self, request: EngineRequest) -> AsyncIterator[None]:
        """Raises `GrammarTrialsBusy` where as many of this project's wait as may."""
        # What it takes is known when it has ended, and only then counts.
        claim = replace(claim_of(request, places=1), tokens=0)
        project_id = claim.project_id
        if self._waiting[project_id] >= MAX_WAITING:
            raise GrammarTrialsBusy("too many grammars of this project wait to be compiled")
        self._waiting[project_id] += 1
        try:
            place = _taken(await self._place.enter(claim))
        finally:
            self._waiting[project_id] -= 1
            self._waiting += Counter()
        began = perf_counter()
        try:
            yield
        finally:
            took_ms = int((perf_counter() - began) * 1000)
            self._place.leave(place, used_tokens=min(took_ms, LONGEST_MS))
