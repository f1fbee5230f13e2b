"""Decides which waiting jobs share a transaction: while a row's transaction is running, the jobs that want the row
gather for the next one, and no row ever has two at once."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from billing.errors import LedgerUnavailable
from billing.store.database import RowWork

# Ends the jobs, or gives them back by row, each row to be run in a group of its own.
Run = Callable[[list["Job"]], Awaitable[list[list["Job"]]]]


@dataclass(slots=True, eq=False)
class Job:
    """Work that is waiting. Its caller may cancel `done` before it has started; after that it goes to its end."""

    work: RowWork[Any]
    durable: bool
    has_started: bool = False
    done: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def row(self) -> str:
        return self.work.row

    def succeed(self, result: Any) -> None:
        if not self.done.done():
            self.done.set_result(result)

    def fail(self, error: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(error)
            # Its caller may be gone, and asyncio would log an exception that was never retrieved.
            self.done.exception()


class GroupCommit:
    """Runs groups of jobs, one at a time while each ends within `stall_s`. One that does not, such as one whose
    row another process keeps locked, is overtaken by the jobs of other rows, with `lanes` groups at the most."""

    def __init__(self, run: Run, *, lanes: int, max_group: int, stall_s: float) -> None:
        self._run = run
        self._lanes = lanes
        self._max_group = max_group
        self._stall_s = stall_s
        self._waiting: dict[str, deque[Job]] = {}
        # Rows that have jobs and no transaction, in the order of their turns.
        self._ready: deque[str] = deque()
        self._locked: set[str] = set()
        self._groups: set[asyncio.Task[None]] = set()
        self._quick: set[asyncio.Task[None]] = set()
        self._closed = False

    def submit(self, job: Job) -> None:
        if self._closed:
            raise LedgerUnavailable("the ledger is closed")
        if job.row not in self._waiting:
            self._waiting[job.row] = deque()
            if job.row not in self._locked:
                self._ready.append(job.row)
        self._waiting[job.row].append(job)
        self._start()

    async def close(self) -> None:
        """Returns when every job that was submitted is done."""
        self._closed = True
        while self._groups:
            await asyncio.wait(self._groups)

    def _start(self) -> None:
        if self._ready and not self._quick and len(self._groups) < self._lanes:
            # The jobs are chosen when the task begins: all who submit in this turn of the loop are among them.
            self._quick.add(self._begin(self._run_next()))

    def _begin(self, group: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(group)
        self._groups.add(task)
        task.add_done_callback(self._end)
        return task

    def _end(self, task: asyncio.Task[None]) -> None:
        self._groups.discard(task)
        self._overtake(task)

    def _overtake(self, task: asyncio.Task[None]) -> None:
        self._quick.discard(task)
        self._start()

    async def _run_next(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        stall = asyncio.get_running_loop().call_later(self._stall_s, self._overtake, task)
        try:
            if group := self._take():
                self._locked |= _rows(group)
                await self._run_locked(group)
        finally:
            stall.cancel()

    async def _run_locked(self, group: list[Job]) -> None:
        parts: list[list[Job]] = []
        try:
            parts = await self._run(group)
        finally:
            kept = set().union(*map(_rows, parts))
            free = _rows(group) - kept
            self._locked -= free
            # At the end of the queue: a row with many jobs takes turns with the others.
            self._ready.extend(row for row in free if row in self._waiting)
        for part in parts:
            self._begin(self._run_locked(part))

    def _take(self) -> list[Job]:
        """Sorted by row: two processes whose groups lock the same rows in different orders would deadlock."""
        group: list[Job] = []
        while self._ready and len(group) < self._max_group:
            row = self._ready.popleft()
            jobs = self._waiting[row]
            while jobs and len(group) < self._max_group:
                job = jobs.popleft()
                if not job.done.cancelled():
                    job.has_started = True
                    group.append(job)
            if not jobs:
                del self._waiting[row]
        return sorted(group, key=lambda job: job.row)


def _rows(group: list[Job]) -> set[str]:
    return {job.row for job in group}
