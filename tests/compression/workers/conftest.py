"""A pool of real processes that have no model, and a way to wait for what they do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from compression.pipeline.compression_model import NO_TERMS, JobTerms
from compression.workers.fork_server import Program, Spawner
from compression.workers.lanes import LanePlan, PoolPlan, Replaced
from compression.workers.pool import Pool
from tests.compression.workers.acting import PATIENCE_S, Acted, eventually


def plan(
    *, small: int = 1, large: int = 1, shared: int = 0, longest_s: float | None = None, **also: Any
) -> PoolPlan:
    numbers: dict[str, Any] = {"large_bytes": 1000, "max_waiting": 64, "deadline_s": PATIENCE_S, **also}
    warm = LanePlan(small, longest_s=longest_s, is_warm=True)
    return PoolPlan(warm, LanePlan(large, niceness=5), LanePlan(1, niceness=7), shared, **numbers)


@dataclass
class Counting:
    """An observer that remembers."""

    reasons: list[Replaced] = field(default_factory=list)
    deadlines: int = 0
    waiting: int = 0
    running: int = 0

    def jobs(self, *, waiting: int, running: int) -> None:
        self.waiting, self.running = waiting, running

    def replaced(self, reason: Replaced) -> None:
        self.reasons.append(reason)

    def deadline_passed(self) -> None:
        self.deadlines += 1


@dataclass
class Acting:
    """A pool whose jobs are orders to `acting`."""

    pool: Pool
    spawner: Spawner
    seen: Counting

    async def order(self, order: str, *, size: int = 1, terms: JobTerms = NO_TERMS) -> Acted:
        return Acted(*json.loads(await self.pool.run(order.encode().ljust(size), terms=terms)))

    def begin(self, order: str, **also: Any) -> asyncio.Task[Acted]:
        return asyncio.create_task(self.order(order, **also))


@asynccontextmanager
async def acting(program: str, plan: PoolPlan, **also: Any) -> AsyncIterator[Acting]:
    spawner, seen = Spawner(Program(program, None), start_s=PATIENCE_S), Counting()
    pool = Pool(spawner.start, plan, seen, **also)
    try:
        await pool.start()
        yield Acting(pool, spawner, seen)
    finally:
        await pool.close()
        spawner.close()


async def pid_in(path: Path) -> int:
    """The process that a job has named in the file."""
    return int((await eventually(lambda: whole_lines(path)))[-1])


def whole_lines(path: Path) -> list[str]:
    text = path.read_text() if path.exists() else ""
    return text.split() if text.endswith("\n") else []


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
