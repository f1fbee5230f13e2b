"""The servers' way to their ledger, which can be told to lose answers, and the clock of SQLite, which can be set."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, TypeVar

import billing.usage
import serve.money.upkeep
from billing.errors import LedgerUnavailable
from billing.store.database import Database, Work

T = TypeVar("T")
LOST_SHARE = 0.4


class FakeForgetfulDatabase(Database):
    """A real database whose answers get lost, now and then, while the switch is on: it has committed all the same."""

    def __init__(self, inner: Database, folder: Path) -> None:
        self._inner = inner
        self._switch = _losing(folder)
        self._rng = random.Random(os.getpid())

    async def write(self, work: Work[T], *, durable: bool = True) -> T:
        result = await self._inner.write(work, durable=durable)
        if self._switch.exists() and self._rng.random() < LOST_SHARE:
            raise LedgerUnavailable("the harness lost the answer")
        return result

    async def read(self, work: Work[T]) -> T:
        return await self._inner.read(work)

    async def close(self) -> None:
        await self._inner.close()


def lose_answers(folder: Path, *, lose: bool) -> None:
    if lose:
        _losing(folder).touch()
    else:
        _losing(folder).unlink(missing_ok=True)


def set_clock(folder: Path, ahead_s: float) -> None:
    """SQLite's clock is so far ahead from now on, in every server and in the watcher."""
    fresh = _clock(folder).with_suffix(".new")
    fresh.write_text(str(ahead_s))
    fresh.rename(_clock(folder))


def clock_of(folder: Path) -> Callable[[], float]:
    """Seconds since 1970, as the run has it."""
    file = _clock(folder)
    return lambda: time.time() + (float(file.read_text()) if file.exists() else 0.0)


def set_wall_clock(folder: Path, ahead_s: float) -> None:
    """The clock of every server's process is so far ahead from now on; SQLite's with it."""
    fresh = _wall_clock(folder).with_suffix(".new")
    fresh.write_text(str(ahead_s))
    fresh.rename(_wall_clock(folder))


def follow_wall_clock(folder: Path) -> None:
    """From here on, all that asks for the time in this process gets what `set_wall_clock` says."""
    file, real_s, real = _wall_clock(folder), time.time, datetime

    def ahead_s() -> float:
        return float(file.read_text()) if file.exists() else 0.0

    class Ahead(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return real.now(tz) + timedelta(seconds=ahead_s())

    time.time = lambda: real_s() + ahead_s()
    # What the product asks for a date (`billing.usage.now`), and what else asks for one.
    for module in (billing.usage, serve.money.upkeep):
        assert vars(module)["datetime"] is real
        vars(module)["datetime"] = Ahead


def _wall_clock(folder: Path) -> Path:
    return folder / "wall-clock-ahead-s"


def _losing(folder: Path) -> Path:
    return folder / "answers-are-lost"


def _clock(folder: Path) -> Path:
    return folder / "clock-ahead-s"
