"""PostgreSQL as a ledger, through asyncpg: pools, timeouts, one retry when a connection was dead, and group commits of
work that names its row.

Measured with 64 clients on one workspace (docs/ledger-benchmark.md): groups made three times the settlements of single
transactions, and a savepoint around each job took half of that gain away again. So a group has none, and only a row
whose jobs were refused recently gets them."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

from sqlalchemy import Connection
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from billing.errors import BillingError, LedgerUnavailable
from billing.store.database import Database, LongWork, RowWork, Work, blames_the_row, translated_errors

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


T = TypeVar("T")

MAX_GROUP = 64
# Several times what a full group takes: then other rows overtake it.
STALL_S = 0.2
# How long a group of many rows waits for one of them. Other servers' groups end sooner.
PATIENCE_S = 1.0

_DEADLOCK = "40P01"
# After how many a work alone is tried again; PostgreSQL takes a second to notice each. A group is divided after two.
MAX_DEADLOCKS = 10
# PostgreSQL starts, or recovers since one of its processes was killed: it was asked nothing, and is looked for again.
_CANNOT_CONNECT_NOW = "57P03"
_LOOK_AGAIN_S = 0.05
# A lock or a statement that took too long: in a group of many rows, one row is at fault.
_TOO_LONG = ("55P03", "57014", _DEADLOCK)


class PostgresDatabase(Database):
    """Two pools: the second commits without waiting for the disk, which is enough for a hold, since the
    request that it belongs to dies with the machine too."""

    def __init__(self, url: URL, *, timeout_s: float, pool_size: int) -> None:
        self._timeout_s = timeout_s
        self._durable = _engine(url, timeout_s, pool_size, synchronous_commit="on")
        self._relaxed = _engine(url, timeout_s, pool_size, synchronous_commit="off")
        self._group_commit = GroupCommit(
            self._run_group, lanes=pool_size, max_group=MAX_GROUP, stall_s=STALL_S
        )
        # Rows whose jobs were refused recently, such as a workspace without money: they get savepoints.
        self._refusing: set[str] = set()

    async def write(self, work: Work[T], *, durable: bool = True) -> T:
        """Work that names its row may wait `timeout_s` for its turn, and never starts after that."""
        if not isinstance(work, RowWork):
            return await self._run(self._durable if durable else self._relaxed, work)
        job = Job(work, durable)
        with translated_errors():
            self._group_commit.submit(job)
            try:
                await asyncio.wait([job.done], timeout=self._timeout_s)
            finally:
                if not job.has_started:
                    job.done.cancel()
            if not job.has_started:
                raise TimeoutError(f"the write was not started within {self._timeout_s} s")
            result: T = await job.done
        return result

    async def read(self, work: Work[T]) -> T:
        return await self._run(self._relaxed, work)

    async def close(self) -> None:
        await self._group_commit.close()
        await self._durable.dispose()
        await self._relaxed.dispose()

    async def _run_group(self, group: list[Job]) -> list[list[Job]]:
        """Ends every job of the group one way or another, or returns them by row, to be run separately."""
        try:
            return await self._commit(group, self._refusing)
        except BaseException as error:
            for job in group:
                job.fail(error)
            if not isinstance(error, Exception):
                raise
            return []

    async def _commit(self, group: list[Job], careful: Collection[str]) -> list[list[Job]]:
        engine = self._durable if any(job.durable for job in group) else self._relaxed
        try:
            patience_s = min(PATIENCE_S, self._timeout_s / 2)
            work = partial(_run_jobs, group, careful, patience_s)
            results = await self._in_time(engine, work, deadlocks=MAX_DEADLOCKS if len(group) == 1 else 1)
        except Exception as error:
            if len(group) == 1 or not _blames_a_job(error):
                raise
            return await self._divide(group, careful, error)
        for job, result in zip(group, results, strict=True):
            if isinstance(result, Exception):
                job.fail(result)
            else:
                job.succeed(result)
        self._remember(group, results)
        return []

    async def _divide(self, group: list[Job], careful: Collection[str], error: Exception) -> list[list[Job]]:
        """After a group was rolled back: its jobs again, so that only the one at fault fails."""
        rows = {job.row for job in group}
        state = _state(error)
        if state.startswith(_TOO_LONG) and len(rows) > 1:
            return [list(jobs) for _, jobs in groupby(group, key=lambda job: job.row)]
        # A deadlock is over other locks than the row's: those of holds that another server settles too.
        if state.startswith(_TOO_LONG) and state != _DEADLOCK:
            raise error
        if state != _DEADLOCK and not rows <= set(careful):
            return await self._commit(group, rows)
        for job in group:
            await self._run_group([job])
        return []

    def _remember(self, group: Sequence[Job], results: Sequence[Any]) -> None:
        refused = {
            job.row for job, result in zip(group, results, strict=True) if isinstance(result, Exception)
        }
        self._refusing = (self._refusing - {job.row for job in group}) | refused

    async def _run(self, engine: AsyncEngine, work: Work[T]) -> T:
        with translated_errors():
            return await self._in_time(engine, work)

    async def _in_time(self, engine: AsyncEngine, work: Work[T], *, deadlocks: int = MAX_DEADLOCKS) -> T:
        """A victim of so many deadlocks is tried again: each was rolled back, and let another transaction through."""
        lost = False
        async with asyncio.timeout(None if isinstance(work, LongWork) else self._timeout_s):
            while True:
                try:
                    return await self._transact_once_up(engine, work)
                except DBAPIError as error:
                    # After a restart of PostgreSQL every pooled connection is dead once. A commit that broke
                    # off is not tried again, since it may have happened: that is a ConnectionError.
                    if _state(error) == _DEADLOCK and deadlocks > 0:
                        deadlocks -= 1
                    elif error.connection_invalidated and not lost:
                        lost = True
                    else:
                        raise

    async def _transact_once_up(self, engine: AsyncEngine, work: Work[T]) -> T:
        until = asyncio.get_running_loop().time() + self._timeout_s
        while True:
            try:
                return await self._transact(engine, work)
            except Exception as error:
                if _state(error) != _CANNOT_CONNECT_NOW or asyncio.get_running_loop().time() > until:
                    raise
            await asyncio.sleep(_LOOK_AGAIN_S)

    @staticmethod
    async def _transact(engine: AsyncEngine, work: Work[T]) -> T:
        async with engine.connect() as connection:
            result = await connection.run_sync(work)
            try:
                await connection.commit()
            except DBAPIError as error:
                if error.connection_invalidated:
                    raise ConnectionError("the connection was lost during the commit") from error
                raise
            return result


def _run_jobs(
    group: Sequence[Job], careful: Collection[str], patience_s: float, connection: Connection
) -> list[Any]:
    """What each job returned, or the refusal that one with a savepoint raised; any other error undoes the group."""
    if len(group) == 1:
        return [group[0].work(connection)]
    if group[0].row != group[-1].row:
        # So that a row which another process keeps locked does not hold up the others for long.
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {int(patience_s * 1000)}")
    return [_attempt(connection, job.work) if job.row in careful else job.work(connection) for job in group]


def _attempt(connection: Connection, work: Work[Any]) -> Any:
    try:
        with connection.begin_nested():
            return work(connection)
    except BillingError as refusal:
        return refusal
    except Exception as error:
        if blames_the_row(error):
            return error
        raise


def _blames_a_job(error: Exception) -> bool:
    """False where the database is at fault, such as when there is no connection: then the whole group fails."""
    if not isinstance(error, SQLAlchemyError | OSError):
        return True
    return blames_the_row(error) or _state(error).startswith(_TOO_LONG)


def _state(error: BaseException) -> str:
    """PostgreSQL's five-letter error code, or an empty string."""
    return getattr(getattr(error, "orig", None), "sqlstate", None) or ""


def _engine(url: URL, timeout_s: float, pool_size: int, *, synchronous_commit: str) -> AsyncEngine:
    milliseconds = str(int(timeout_s * 1000))
    settings = {
        "application_name": "pith",
        "synchronous_commit": synchronous_commit,
        "statement_timeout": milliseconds,
        "lock_timeout": milliseconds,
        # A replica that hangs within a transaction must not hold a workspace's row for ever.
        "idle_in_transaction_session_timeout": milliseconds,
        "jit": "off",
    }
    return create_async_engine(
        url,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=timeout_s,
        connect_args={"timeout": timeout_s, "server_settings": settings},
    )
