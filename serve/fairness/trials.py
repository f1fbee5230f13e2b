"""Turns at a replica's grammar trials: one at a time, projects in turn by the time that theirs took."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from time import perf_counter

from models.engine import EngineRequest
from models.errors import GrammarTrialsBusy
from serve.fairness.claims import claim_of
from serve.fairness.places import FairPlaces, Shares

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
