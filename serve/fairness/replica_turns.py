"""Turns in a replica, where all ingress processes meet: of requests at its engine, and of grammars at its trials."""

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from time import perf_counter
from typing import Protocol

from models.engine import EngineChunk, EngineFault, EngineRequest
from models.errors import GrammarTrialsBusy
from serve.fairness.places import Claim, FairPlaces, Shares, claim_of

Generate = Callable[[EngineRequest], AsyncGenerator[EngineChunk | EngineFault, None]]


class TurnObserver(Protocol):
    """Told of each request: it waits, and then gives up or begins; one that has begun ends."""

    def wait(self) -> None: ...

    def give_up(self) -> None: ...

    def begin(self, waited_s: float) -> None: ...

    def end(self) -> None: ...


class FairGeneration:
    """An engine that runs `places` sequences at once. A request that waits sends nothing, so its client can give up."""

    def __init__(
        self, generate: Generate, *, places: int, shares: Shares, observer: TurnObserver | None = None
    ) -> None:
        self._generate = generate
        self._observer = observer
        self._all = places
        self._places = FairPlaces(lambda: places, shares=shares)

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        """Yield what the engine does, once there is room for the request."""
        most = request.most_choices(self._all)
        if request.choices > most:
            yield EngineFault("rejected", f"at most {most} choices of a prompt with this model", "n")
            return
        claim = claim_of(request, places=request.places(self._all))
        await self._enter(claim)
        used_tokens = 0
        try:
            async with aclosing(self._generate(request)) as items:
                async for item in items:
                    if isinstance(item, EngineChunk):
                        used_tokens = item.usage.total_tokens
                    yield item
        finally:
            self._places.leave(claim, used_tokens=used_tokens)
            if self._observer is not None:
                self._observer.end()

    async def _enter(self, claim: Claim) -> None:
        observer = self._observer
        if observer is None:
            await self._places.enter(claim)
            return
        asked = perf_counter()
        observer.wait()
        try:
            await self._places.enter(claim)
        except BaseException:
            observer.give_up()
            raise
        observer.begin(perf_counter() - asked)


# Of one project: so many of its grammars may wait, each for half a second at most.
MAX_WAITING = 32
# The most that a trial counts for: the first one's has the start of the helper in it, which serves all.
LONGEST_MS = 1000


class FairTrials:
    """The `models.grammar.trials.TrialTurns` of a replica, by the queue in which requests wait for its engine."""

    def __init__(self) -> None:
        self._place = FairPlaces(lambda: 1, shares=Shares(alone=1, contended=1))
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
            await self._place.enter(claim)
        finally:
            self._waiting[project_id] -= 1
            self._waiting += Counter()
        began = perf_counter()
        try:
            yield
        finally:
            took_ms = int((perf_counter() - began) * 1000)
            self._place.leave(claim, used_tokens=min(took_ms, LONGEST_MS))
