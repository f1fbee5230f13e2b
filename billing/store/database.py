"""Opens a database by URL, and runs units of work in its transactions.

A unit of work is a plain function of a synchronous `Connection`: one body of SQL serves both databases. A circuit
breaker lets requests that can do without the ledger go on while it hangs."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from sqlalchemy import Connection, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    IntegrityError,
    SQLAlchemyError,
    StatementError,
)
from sqlalchemy.util import await_only

from billing.errors import DatabaseConfigError, LedgerUnavailable, RowRefused

T = TypeVar("T")
Work = Callable[[Connection], T]


@dataclass(frozen=True, slots=True)
class RowWork(Generic[T]):
    """Work that names the one shared row that it locks, such as a workspace's id. Several may share a transaction,
    which is rolled back and run again when one of them fails."""

    row: str
    work: Work[T]

    def __call__(self, connection: Connection) -> T:
        return self.work(connection)


@dataclass(frozen=True, slots=True)
class PatientWork(Generic[T]):
    """Work that no payment waits for. It shares no transaction, and in a queue of writes it lets others go first."""

    work: Work[T]

    def __call__(self, connection: Connection) -> T:
        return self.work(connection)


@dataclass(frozen=True, slots=True)
class LongWork(Generic[T]):
    """Work that takes as long as its rows are many: nothing ends it at the database's deadline. On PostgreSQL it lifts
    that of its statements itself."""

    work: Work[T]

    def __call__(self, connection: Connection) -> T:
        return self.work(connection)


class Database(ABC):
    """Units of work in transactions. Every failure of the database is `LedgerUnavailable` or `RowRefused`."""

    @abstractmethod
    async def write(self, work: Work[T], *, durable: bool = True) -> T:
        """Runs `work` and commits. `durable` means that the commit outlives a power cut, not only a crash."""

    @abstractmethod
    async def read(self, work: Work[T]) -> T:
        """Runs `work`, which must not write."""

    @abstractmethod
    async def close(self) -> None:
        """Finishes what was begun, and closes every connection."""


def open_database(
    url: str, *, timeout_s: float = 5.0, pool_size: int = 8, clock: Callable[[], float] = time.time
) -> Database:
    """A database by URL: `sqlite:///path` or `postgresql+asyncpg://user@host/name`. Connects on first use.

    `clock`, in seconds since 1970, is SQLite's; PostgreSQL has its own.
    """
    # Imported here, so that a server on SQLite never loads asyncpg, and the other way round.
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        from billing.store.sqlite import SqliteDatabase

        return SqliteDatabase(parsed.database or "", timeout_s=timeout_s, clock=clock)
    from billing.store.postgres import PostgresDatabase

    return PostgresDatabase(parsed, timeout_s=timeout_s, pool_size=pool_size)


def parse_url(url: str) -> URL:
    """Raises `DatabaseConfigError` that names what is wrong, without repeating a password."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise DatabaseConfigError("the database URL is not a URL, such as sqlite:///var/pith.db") from error
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        if not parsed.database or parsed.database == ":memory:":
            raise DatabaseConfigError("the database URL must name a file: a ledger in memory would be lost")
        return parsed
    if backend != "postgresql":
        raise DatabaseConfigError(f"the database must be sqlite or postgresql, not {backend!r}")
    return parsed.set(drivername="postgresql+asyncpg")


def use_one_snapshot(connection: Connection) -> None:
    """Makes the statements of this transaction see the database as it is now; call it first. SQLite does so anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))


def let_others_run(connection: Connection) -> None:
    """Call it now and then in work that computes for long: on PostgreSQL it is run by the event loop itself."""
    if connection.dialect.is_async:
        await_only(asyncio.sleep(0))


@contextmanager
def translated_errors() -> Iterator[None]:
    """The errors of SQLAlchemy, the driver and the network, as this folder's own."""
    try:
        yield
    except (SQLAlchemyError, OverflowError, UnicodeError) as error:
        if blames_the_row(error):
            raise RowRefused(f"the ledger refused the row: {describe(error)}") from error
        raise LedgerUnavailable(f"the ledger is unavailable: {describe(error)}") from error
    except OSError as error:
        # A timeout too: TimeoutError is an OSError.
        raise LedgerUnavailable(f"the ledger is unavailable: {describe(error)}") from error


def blames_the_row(error: Exception) -> bool:
    """True where the same row would be refused again: a constraint, or a value that does not fit."""
    if isinstance(error, IntegrityError | DataError | OverflowError | UnicodeError):
        return True
    if not isinstance(error, DBAPIError):
        # The value could not even be bound.
        return isinstance(error, StatementError)
    # asyncpg's own classes arrive without a type of SQLAlchemy's; SQLSTATE 22 is bad data, 23 a constraint.
    state = getattr(error.orig, "sqlstate", None) or ""
    return state.startswith(("22", "23"))


def describe(error: BaseException) -> str:
    """The driver's own words, without the statement and its parameters."""
    original = getattr(error, "orig", None) or error
    return f"{type(original).__name__}: {original}" if str(original) else type(original).__name__


class FakeOutageDatabase(Database):
    """Passes everything to `inner` until `is_down`; with `loses_answers`, a write is committed and then fails,
    as when the connection breaks between the commit and its answer."""

    def __init__(self, inner: Database) -> None:
        self._inner = inner
        self.is_down = False
        self.loses_answers = False
        self.reads = 0

    async def write(self, work: Work[T], *, durable: bool = True) -> T:
        if self.is_down:
            raise LedgerUnavailable("the fake outage is on")
        result = await self._inner.write(work, durable=durable)
        if self.loses_answers:
            raise LedgerUnavailable("the fake outage lost the answer")
        return result

    async def read(self, work: Work[T]) -> T:
        self.reads += 1
        if self.is_down:
            raise LedgerUnavailable("the fake outage is on")
        return await self._inner.read(work)

    async def close(self) -> None:
        await self._inner.close()


# How long until the ledger, or a row of it, is tried again, and how long one request may wait for it.
PAUSE_S = 1.0
LONGEST_WRITE_S = 15.0
# A healthy ledger answers an empty write within this.
PROBE_S = 1.0
MOST_ROWS = 10_000


class CircuitBreaker:
    """If `may_skip`, one request at a time waits for what hangs, and after a failure none does for a moment.

    An outage of the ledger is distinguished from a workspace's row that stays locked: then only that workspace does
    without it.
    """

    def __init__(self, database: Database, *, may_skip: bool) -> None:
        self._database = database
        self._may_skip = may_skip
        # When each may be tried again; what is not here is healthy.
        self._ledger_again_at: float | None = None
        self._row_again_at: dict[str, float] = {}
        self._probe: asyncio.Task[bool] | None = None

    async def write(self, work: RowWork[T], *, durable: bool) -> T:
        """Raises what `Database.write` raises."""
        if not self._may_skip:
            return await self._database.write(work, durable=durable)
        self._require_closed(work.row)
        try:
            result = await self._database.write(work, durable=durable)
        except LedgerUnavailable:
            await self._trip(work.row)
            raise
        except BaseException:
            # It answered.
            self._reset(work.row)
            raise
        self._reset(work.row)
        return result

    def _require_closed(self, row: str) -> None:
        now = asyncio.get_running_loop().time()
        ledger, of_row = self._ledger_again_at, self._row_again_at.get(row)
        if (ledger is not None and now < ledger) or (of_row is not None and now < of_row):
            raise LedgerUnavailable("the ledger is unavailable")
        if ledger is not None:
            self._ledger_again_at = now + LONGEST_WRITE_S
        if of_row is not None:
            self._row_again_at[row] = now + LONGEST_WRITE_S

    def _reset(self, row: str) -> None:
        self._ledger_again_at = None
        self._row_again_at.pop(row, None)

    async def _trip(self, row: str) -> None:
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self._answers())
        answers = await asyncio.shield(self._probe)
        again_at = asyncio.get_running_loop().time() + PAUSE_S
        if not answers:
            self._ledger_again_at = again_at
            return
        self._ledger_again_at = None
        if len(self._row_again_at) >= MOST_ROWS:
            self._row_again_at.clear()
        self._row_again_at[row] = again_at

    async def _answers(self) -> bool:
        try:
            async with asyncio.timeout(PROBE_S):
                await self._database.write(_nothing, durable=False)
        except (LedgerUnavailable, TimeoutError):
            return False
        return True


def _nothing(connection: Connection) -> None:
    connection.execute(text("SELECT 1"))
