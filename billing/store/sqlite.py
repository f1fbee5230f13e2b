"""SQLite as a ledger: one thread writes and commits in groups, a few others read."""

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from sqlite3 import SQLITE_READONLY, OperationalError
from sqlite3 import Connection as SqliteConnection
from sqlite3 import Error as SqliteError
from typing import Any, TypeVar
from weakref import WeakSet

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.pool import NullPool, QueuePool

from billing.errors import BillingError, LedgerUnavailable
from billing.store.database import Database, LongWork, PatientWork, Work, translated_errors
from billing.store.dates import install_clock
from billing.store.durable_files import make_folder
from billing.store.private_files import make_database_private

MAX_GROUP = 64


@dataclass(slots=True, eq=False)
class Job:
    """One unit of work that waits for the writer. Its caller may cancel `done` until the writer takes it."""

    work: Work[Any]
    durable: bool
    done: asyncio.Future[Any]


@dataclass(slots=True, eq=False)
class Waiting:
    """The jobs that the writer has not begun. Of patient work one at most is done between two groups of the rest, so
    that a hold never waits for more than one of it."""

    _urgent: deque[Job] = field(default_factory=deque)
    _patient: deque[Job] = field(default_factory=deque)

    def __bool__(self) -> bool:
        return bool(self._urgent or self._patient)

    def extend(self, jobs: list[Job]) -> None:
        for job in jobs:
            (self._patient if isinstance(job.work, PatientWork) else self._urgent).append(job)

    def next_groups(self) -> Iterator[list[Job]]:
        """Groups that share a transaction, and after each one job of patient work. Given up jobs are left out."""
        for jobs, most in ((self._urgent, MAX_GROUP), (self._patient, 1)):
            if group := _taken(jobs, most):
                yield group


def _taken(jobs: deque[Job], most: int) -> list[Job]:
    group: list[Job] = []
    while jobs and len(group) < most:
        job = jobs.popleft()
        if not job.done.cancelled():
            group.append(job)
    return group


T = TypeVar("T")
READERS = 2


@dataclass(slots=True, eq=False)
class Batch:
    """What one turn of an event loop submits: it reaches the writer together, as do its answers the loop."""

    loop: asyncio.AbstractEventLoop
    jobs: list[Job] = field(default_factory=list)


class SqliteDatabase(Database):
    """WAL with one writer thread. A commit that must be durable syncs the log; the work that queues meanwhile
    shares the next commit, so that throughput is not limited to the disk's syncs per second."""

    def __init__(self, path: str, *, timeout_s: float, clock: Callable[[], float] = time.time) -> None:
        """`clock` returns the seconds since 1970: it is the database's own."""
        self._path = path
        self._timeout_s = timeout_s
        self._clock = clock
        self._reading = _engine(path, timeout_s, clock, read_only=True)
        writing = _engine(path, timeout_s, clock, read_only=False)
        self._writer = Writer(writing, Path(path))
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="ledger-read")
        with _databases_lock:
            _databases.add(self)

    async def write(self, work: Work[T], *, durable: bool = True) -> T:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._writer.submit(Job(work, durable, done))
        with translated_errors():
            # Twice, since SQLite itself may wait once for another process's lock.
            async with asyncio.timeout(None if isinstance(work, LongWork) else 2 * self._timeout_s):
                return await done

    async def read(self, work: Work[T]) -> T:
        loop = asyncio.get_running_loop()
        with translated_errors():
            async with asyncio.timeout(None if isinstance(work, LongWork) else 2 * self._timeout_s):
                return await loop.run_in_executor(self._readers, self._read, work)

    def _read(self, work: Work[T]) -> T:
        # Or SQLite would make an empty database, and the error would be of a missing table.
        if not Path(self._path).exists():
            raise LedgerUnavailable(f"the ledger's database does not exist: {self._path}")
        engine = self._reading
        try:
            with engine.begin() as connection:
                return work(connection)
        finally:
            if engine is not self._reading:
                engine.pool.dispose()

    def close_readers(self) -> None:
        """Close the connections that read, those in use as soon as they are free. Later reads open new ones."""
        before = self._reading
        self._reading = _engine(self._path, self._timeout_s, self._clock, read_only=True)
        before.pool.dispose()

    def is_on(self, path: Path) -> bool:
        return Path(self._path).resolve() == path.resolve()

    async def close(self) -> None:
        self._writer.send()
        await asyncio.to_thread(self._writer.close)
        self._readers.shutdown()
        self._reading.dispose()


# Of this process, since within one all of SQLite's connections to a file share how its index was opened.
_databases: WeakSet[SqliteDatabase] = WeakSet()
_databases_lock = threading.Lock()


def _close_readers_of(path: Path) -> None:
    with _databases_lock:
        for database in _databases:
            if database.is_on(path):
                database.close_readers()


class Writer:
    """The thread that owns the writing connection. It starts with the first job."""

    def __init__(self, engine: Engine, path: Path) -> None:
        self._engine = engine
        self._path = path
        self._batches: queue.SimpleQueue[list[Job] | None] = queue.SimpleQueue()
        self._gathering: Batch | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._connection: Connection | None = None
        self._synchronous = ""

    def submit(self, job: Job) -> None:
        """To be called in the event loop that waits for `job.done`. Raises `LedgerUnavailable` once closed."""
        loop = job.done.get_loop()
        with self._lock:
            if self._closed:
                raise LedgerUnavailable("the ledger is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ledger-write", daemon=True)
                self._thread.start()
            batch = self._gathering
            if batch is None or batch.loop is not loop:
                batch = self._gathering = Batch(loop)
                loop.call_soon(self._send, batch)
            batch.jobs.append(job)

    def send(self) -> None:
        """Give the thread at once what this turn of the loop has submitted."""
        if self._gathering is not None:
            self._send(self._gathering)

    def _send(self, batch: Batch) -> None:
        with self._lock:
            if batch is self._gathering:
                self._gathering = None
            if batch.jobs:
                self._batches.put(batch.jobs)
                batch.jobs = []

    def close(self) -> None:
        """Returns when every job that was sent is done."""
        with self._lock:
            self._closed = True
            self._batches.put(None)
        if self._thread is not None:
            self._thread.join()
        self._engine.dispose()

    def _run(self) -> None:
        waiting = Waiting()
        is_open = True
        while is_open or waiting:
            is_open = self._gather(waiting, is_open=is_open)
            for group in waiting.next_groups():
                self._commit(group)
        self._disconnect()

    def _gather(self, waiting: Waiting, *, is_open: bool) -> bool:
        """Take in all that was sent, and wait if that is nothing; false once `close` was called."""
        while is_open and (not waiting or not self._batches.empty()):
            jobs = self._batches.get()
            if jobs is None:
                return False
            waiting.extend(jobs)
        return is_open

    def _commit(self, group: list[Job]) -> None:
        try:
            results = self._transact(group)
        except Exception as raised:
            # The driver's own error, from a call that bypassed SQLAlchemy.
            error = DBAPIError(None, None, raised) if isinstance(raised, SqliteError) else raised
            if len(group) > 1 and not isinstance(error, SQLAlchemyError | OSError):
                # One job is at fault and the rest was rolled back with it: each is run again by itself.
                for job in group:
                    self._commit([job])
                return
            if isinstance(error, SQLAlchemyError):
                self._disconnect()
            if _is_read_only(error):
                _close_readers_of(self._path)
            results = [error] * len(group)
        _answer(group, results)

    def _transact(self, group: list[Job]) -> list[Any]:
        connection = self._connected(durable=any(job.durable for job in group))
        with connection.begin():
            if len(group) == 1:
                return [group[0].work(connection)]
            return [self._attempt(connection, job) for job in group]

    @staticmethod
    def _attempt(connection: Connection, job: Job) -> Any:
        """Within a group, a refusal undoes its own job alone. Any other error undoes the group."""
        # Bypasses SQLAlchemy, which would compile these each time: that costs as much as the job itself.
        driver = _driver(connection)
        driver.execute("SAVEPOINT job")
        try:
            result = job.work(connection)
        except (BillingError, IntegrityError) as refusal:
            driver.execute("ROLLBACK TO job")
            result = refusal
        driver.execute("RELEASE job")
        return result

    def _connected(self, *, durable: bool) -> Connection:
        if self._connection is None:
            make_folder(self._path.parent)
            make_database_private(self._path)
            self._connection = self._engine.connect()
            self._synchronous = ""
        synchronous = "FULL" if durable else "NORMAL"
        if synchronous != self._synchronous:
            # Bypasses SQLAlchemy, since a pragma within a transaction would have no effect.
            _driver(self._connection).execute(f"PRAGMA synchronous={synchronous}")
            self._synchronous = synchronous
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _is_read_only(error: Exception) -> bool:
    """Where a connection could not open the index beside the log for writing, as without file handles, SQLite reads it
    only, for all connections of the process, until the last of them was closed."""
    code = getattr(getattr(error, "orig", None), "sqlite_errorcode", 0)
    return code & 0xFF == SQLITE_READONLY


def _answer(group: list[Job], results: list[Any]) -> None:
    """Wakes each event loop once. A result that is an exception was raised by its job."""
    answers: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for job, result in zip(group, results, strict=True):
        answers.setdefault(job.done.get_loop(), []).append((job.done, result))
    for loop, told in answers.items():
        # Nobody waits in a closed loop.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_deliver, told)


def _deliver(answers: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for done, result in answers:
        if done.done():
            continue
        if isinstance(result, Exception):
            done.set_exception(result)
        else:
            done.set_result(result)


def _driver(connection: Connection) -> SqliteConnection:
    driver = connection.connection.driver_connection
    assert isinstance(driver, SqliteConnection)
    return driver


def _engine(path: str, timeout_s: float, clock: Callable[[], float], *, read_only: bool) -> Engine:
    engine = create_engine(
        f"sqlite:///{path}",
        connect_args={"timeout": timeout_s, "check_same_thread": False, "isolation_level": None},
        poolclass=QueuePool if read_only else NullPool,
    )

    @event.listens_for(engine, "connect")
    def configure(connection: SqliteConnection, _: object) -> None:
        connection.execute("PRAGMA foreign_keys=ON")
        install_clock(connection, clock)
        # Setting the mode takes a lock, and it is a property of the file: readers find it set.
        if read_only:
            connection.execute("PRAGMA query_only=ON")
        else:
            _use_wal(connection, timeout_s)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # IMMEDIATE: a transaction that reads first and then cannot write would fail at once, not wait.
        connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

    return engine


def _use_wal(connection: SqliteConnection, timeout_s: float) -> None:
    """Waits where another process does the same, since SQLite fails this one statement without waiting."""
    deadline, tick = time.monotonic() + timeout_s, threading.Event()
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except OperationalError:
            if time.monotonic() > deadline:
                raise
        tick.wait(0.005)
