"""The way from a server to a database of the simulated world, on which anything may happen."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from billing.errors import LedgerUnavailable
from billing.store.database import Database, Work
from tests.simulation.store import Store

T = TypeVar("T")

# well: an answer. refused: fails before the work. lost: commits, then fails. silent: never arrives, and the caller
# waits until its timeout. unheard: commits, and the caller waits until its timeout. late: commits after that.
Fate = Literal["well", "refused", "lost", "silent", "unheard", "late"]
FAULTS: tuple[Fate, ...] = ("refused", "lost", "silent", "unheard", "late")
TIMEOUT_S = 10.0
LATEST_S = 8.0


@dataclass
class Weather:
    """What becomes of the calls of one server to one database: now and then a fault, and outages."""

    rng: random.Random
    fault_rate: float = 0.0
    outages: list[tuple[float, float]] = field(default_factory=list)
    slowest_s: float = 0.05
    # When the last call that something was done to had its answer, or would have had it.
    troubled_until: float = -math.inf

    def fate(self, now: float) -> Fate:
        fate = self._fate(now)
        if fate != "well":
            self.troubled_until = now + TIMEOUT_S
        return fate

    def _fate(self, now: float) -> Fate:
        if any(begin <= now < end for begin, end in self.outages):
            return self.rng.choice(("refused", "refused", "silent"))
        if self.rng.random() < self.fault_rate:
            return self.rng.choice(FAULTS)
        return "well"

    def delay_s(self) -> float:
        # Often none at all: then it is the loop's choice who is first.
        return 0.0 if self.rng.random() < 0.3 else self.rng.random() * self.slowest_s

    def clear_up(self) -> None:
        """From now on all goes well."""
        self.fault_rate = 0.0
        self.outages = []


@dataclass(frozen=True)
class Link:
    """From one server to one database. What was sent goes on `there`, whatever becomes of the server."""

    name: str
    weather: Weather
    there: Context
    note: Callable[[str], None]


class SimulatedDatabase(Database):
    """One server's connections to `store`."""

    def __init__(self, store: Store, link: Link) -> None:
        self._store = store
        self._link = link
        self._weather = link.weather
        self._there = link.there

    async def write(self, work: Work[T], *, durable: bool = True) -> T:
        return await self._call(self._store.transact, work)

    async def read(self, work: Work[T]) -> T:
        return await self._call(self._store.read, work)

    async def close(self) -> None:
        """Nothing is open."""

    async def _call(self, run: Any, work: Work[T]) -> T:
        if self._store.is_closed:
            raise LedgerUnavailable("the simulation is over")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        weather = self._weather
        fate = weather.fate(loop.time())
        delay_s = weather.delay_s()
        if fate in ("silent", "unheard", "late"):
            loop.call_later(TIMEOUT_S, _fail, answer, "no answer in time", context=self._there)
        if fate in ("refused", "silent"):
            self._note(fate, "")
        if fate == "refused":
            loop.call_later(delay_s, _fail, answer, "the connection was refused", context=self._there)
        elif fate != "silent":
            if fate == "late":
                delay_s = TIMEOUT_S + weather.rng.random() * LATEST_S
            loop.call_later(delay_s, self._arrive, run, work, fate, answer, context=self._there)
        return await answer

    def _arrive(self, run: Any, work: Work[T], fate: Fate, answer: asyncio.Future[T]) -> None:
        if answer.cancelled() and self._weather.rng.random() < 0.5:
            # Its caller went before it was begun.
            return
        try:
            result = run(work)
            self._note(fate, "")
        except Exception as error:
            self._note(fate, f": {type(error).__name__}")
            if fate in ("well", "lost"):
                _answer_later(answer, error, self._weather, self._there)
            return
        if fate == "lost":
            _fail(answer, "the connection broke before the answer")
        elif fate == "well":
            _answer_later(answer, result, self._weather, self._there)

    def _note(self, fate: Fate, what: str) -> None:
        statements = self._store.statements
        if what or statements or fate != "well":
            self._link.note(f"{self._link.name}, {fate}{what} {'; '.join(statements)}")
        statements.clear()


def _answer_later(answer: asyncio.Future[Any], result: Any, weather: Weather, there: Context) -> None:
    answer.get_loop().call_later(weather.delay_s(), _answer, answer, result, context=there)


def _answer(answer: asyncio.Future[Any], result: Any) -> None:
    if answer.done():
        return
    if isinstance(result, Exception):
        answer.set_exception(result)
        # Nobody may be left to look.
        answer.exception()
    else:
        answer.set_result(result)


def _fail(answer: asyncio.Future[Any], why: str) -> None:
    _answer(answer, LedgerUnavailable(f"the ledger is unavailable: {why}"))
