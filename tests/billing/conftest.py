"""A ledger on each database that pith supports: SQLite in a file, and a PostgreSQL of this test run's own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from redis import Redis
from redis.exceptions import RedisError
from sqlalchemy import select, text

from benchmarks.ledger.postgres_server import PostgresNotFound, private_postgres
from billing.accounts.accounts import Accounts
from billing.books.books import Books as Reader
from billing.books.invariants import Violation, differences
from billing.books.saving import Dimension
from billing.books.usage_report import UsageSum, usage
from billing.caller import NO_LIMITS, Caller, ProjectLimits
from billing.ledger.leases import LeaseTimes
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.price import Cost, ModelPrice
from billing.store.database import Database, FakeOutageDatabase, open_database
from billing.store.schema import usage_events
from billing.usage import Hold, Settlement, UsageEvent, UsageFigures, mint_event_id
from tests.migrated import create_database, execute_on_postgres, migrated_file

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
# Looks at other servers' leases without a pause in between.
HASTY = LeaseTimes(renew_every_s=0)
PEPPER = b"a pepper for the tests only"
PRICES = (
    ModelPrice("model-a", 150_000, 600_000, 20_000),
    ModelPrice("model-b", 0, 0, 0),
)

DATABASES = ("sqlite", "postgresql")
# What decides on money as requests come: each of their tests always runs on both databases, others' by turns.
ON_BOTH = ("accounts", "ledger", "store")


class DatabaseClock:
    """The clock of a ledger's database, which stands still until a test sets it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.moment = NOW

    def __call__(self) -> float:
        return self.moment.timestamp()

    async def set(self, moment: datetime) -> None:
        self.moment = moment
        if self._url.startswith("postgresql"):
            seconds = f"{moment.timestamp()!r}::double precision"
            await execute_on_postgres(
                self._url,
                "CREATE OR REPLACE FUNCTION pith_now() RETURNS double precision LANGUAGE sql VOLATILE AS "
                f"$$ SELECT {seconds} $$",
            )


def event_row(caller: Caller, moment: datetime, **fields: Any) -> dict[str, Any]:
    """An event as the ledger has it; what a test does not name is of no consequence."""
    return {
        "event_id": mint_event_id(moment),
        "request_id": "r",
        "workspace_id": caller.workspace_id,
        "project_id": caller.project_id,
        "key_id": caller.key_id,
        "model_id": "model-a",
        "pricing_version": 1,
        "prompt_tokens": 1,
        "completion_tokens": 1,
        "cached_tokens": 0,
        "subtotal_nano_usd": 1,
        "minimum_applied": False,
        "outcome": "completed",
        "stream": False,
        "created_at": moment,
        "settled_at": moment,
        "month": f"{moment:%Y-%m}",
        **fields,
    }


@dataclass
class Books:
    """One ledger with one paying workspace, and everything that a test wants to do with it.

    What takes `now` sets the database's clock to it first.
    """

    url: str
    database: Database
    accounts: Accounts
    ledger: Ledger
    spool: Spool
    pricing_version: int
    spool_path: Path
    clock: DatabaseClock
    now: datetime = NOW

    async def at(self, moment: datetime) -> None:
        """Set the database's clock."""
        if moment != self.clock.moment:
            await self.clock.set(moment)

    async def clock_in_the_next_month(self) -> datetime:
        """Set the database's clock there; returns the moment."""
        later = self.now.replace(month=self.now.month + 1)
        await self.at(later)
        return later

    def reader(self) -> Reader:
        return Reader(self.database)

    async def usage(self, by: Sequence[Dimension], **which: Any) -> list[UsageSum]:
        return await self.database.read(partial(usage, by=by, **which))

    async def sweep(self) -> None:
        """What another server does of this ledger in the time that it needs to be sure, without the waiting."""
        spool = Spool(self.spool_path.with_name("sweeper.db"))
        sweeper = Ledger(self.database, spool, lease=HASTY)
        for _ in range(HASTY.looks):
            await sweeper.keep_leases()
        await sweeper.close()
        await spool.close()

    async def new_caller(
        self,
        *,
        spend_limit_nano_usd: int | None = None,
        monthly_limit_nano_usd: int | None = None,
        metered: bool = True,
        limits: ProjectLimits = NO_LIMITS,
        now: datetime = NOW,
    ) -> Caller:
        workspace = await self.accounts.create_workspace(
            f"workspace {uuid4().hex}",
            spend_limit_nano_usd=spend_limit_nano_usd,
            monthly_limit_nano_usd=monthly_limit_nano_usd,
            now=now,
        )
        project = await self.accounts.create_project(
            workspace.id, "project", metered=metered, limits=limits, now=now
        )
        _, token = await self.accounts.keys.create(project.id, "key", now=now)
        return await self.accounts.authenticate(token, now=now)

    async def settle(
        self, hold: Hold, cost_nano_usd: int = 400, *, now: datetime | None = None
    ) -> Settlement:
        now = now or self.clock.moment
        await self.at(now)
        return await self.ledger.settle(
            hold,
            figures=UsageFigures(prompt_tokens=10, completion_tokens=20, cached_tokens=3, stream=True),
            cost=Cost(subtotal_nano_usd=cost_nano_usd, nano_usd=cost_nano_usd, minimum_applied=False),
            outcome="completed",
            now=now,
        )

    async def money(self, caller: Caller) -> tuple[int, int]:
        """Posted and held, as the workspace's row has them, after they were found to match the rows below."""
        assert await self.differences() == []
        workspace = await self.accounts.find_workspace(caller.workspace_id)
        return workspace.posted_nano_usd, workspace.held_nano_usd

    async def differences(self) -> list[Violation]:
        """Balances that the ledger's own rows do not add up to."""
        return await self.database.read(differences)

    async def events(self) -> list[UsageEvent]:
        statement = select(usage_events).order_by(usage_events.c.settled_at)
        rows = await self.database.read(lambda c: c.execute(statement).all())
        return [UsageEvent(**row._mapping) for row in rows]

    async def count_events(self) -> int:
        return await self.database.read(
            lambda c: c.execute(text("SELECT count(*) FROM usage_events")).scalar_one()
        )

    async def hold(
        self,
        caller: Caller,
        amount_nano_usd: int = 1000,
        *,
        now: datetime | None = None,
        request_id: str = "request",
        may_land: bool = False,
    ) -> Hold:
        now = now or self.clock.moment
        await self.at(now)
        return await self.ledger.hold(
            caller,
            model_id="model-a",
            pricing_version=self.pricing_version,
            amount_nano_usd=amount_nano_usd,
            request_id=request_id,
            now=now,
            may_land=may_land,
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What runs on PostgreSQL or Redis starts a real server, so it is left to the whole run."""
    here = Path(__file__).parent
    for item in items:
        if here not in item.path.parents:
            continue
        given = getattr(item, "callspec", None)
        params = given.params.values() if given is not None else ()
        if {"postgresql", "redis"} & {value for value in params if isinstance(value, str)}:
            item.add_marker(pytest.mark.integration)
        if {"redis_server", "mortal_redis"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.integration)
    mark_by_turns([item for item in items if item.path.is_relative_to(here)])


def mark_by_turns(items: Sequence[pytest.Item]) -> None:
    """Of a test that runs on both databases one is left to `make test-long`, the next test's is the other one."""
    both: dict[Path, dict[str, list[pytest.Item]]] = {}
    for item in items:
        given = getattr(item, "callspec", None)
        if given is not None and "database_url" in given.params and item.path.parent.name not in ON_BOTH:
            test = item.nodeid.replace(given.params["database_url"], "")
            both.setdefault(item.path, {}).setdefault(test, []).append(item)
    for tests in both.values():
        for number, pair in enumerate(pair for pair in tests.values() if len(pair) == len(DATABASES)):
            pair[number % len(DATABASES)].add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL prefix of a PostgreSQL that listens on loopback only and is gone after the run."""
    try:
        # The tests kill processes and connections, never the machine: only that would need "fsync".
        with private_postgres(fsync=False) as server:
            yield server
    except PostgresNotFound as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(f"{error} to run these")


class RedisServer:
    """A real Redis on a socket of its own, which keeps nothing when it stops."""

    def __init__(self, binary: str, folder: Path) -> None:
        self.url = f"unix://{folder / 'redis.sock'}"
        socket_options = ["--port", "0", "--unixsocket", str(folder / "redis.sock")]
        self._command = [binary, *socket_options, "--save", "", "--appendonly", "no", "--dir", str(folder)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        client = Redis.from_url(self.url)
        try:
            wait_for(lambda: self._pings(client), "Redis answers")
        finally:
            client.close()

    def stop(self, number: int = signal.SIGKILL) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        if number == signal.SIGKILL:
            self._process.wait()

    @staticmethod
    def _pings(client: Redis) -> bool:
        try:
            return bool(client.ping())
        except RedisError:
            return False


def wait_for(condition: Callable[[], bool], what: str, *, timeout_s: float = 60) -> None:
    """Poll until `condition` is true; fail at the deadline."""
    deadline, tick = time.monotonic() + timeout_s, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        tick.wait(0.01)


@pytest.fixture(scope="session")
def redis_binary() -> str:
    binary = shutil.which("redis-server")
    if binary is None:
        message = "redis-server was not found; install it (Debian: apt-get install redis-server) to run these"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return binary


@pytest.fixture(scope="session")
def redis_server(redis_binary: str) -> Iterator[str]:
    """The URL of a Redis that is this run's own; tests use projects of their own in it."""
    with tempfile.TemporaryDirectory(prefix="pith-redis-") as folder:
        server = RedisServer(redis_binary, Path(folder))
        server.start()
        try:
            yield server.url
        finally:
            server.stop()


@pytest.fixture
def mortal_redis(redis_binary: str) -> Iterator[RedisServer]:
    """A Redis that the test may stop and start."""
    with tempfile.TemporaryDirectory(prefix="pith-redis-") as folder:
        server = RedisServer(redis_binary, Path(folder))
        server.start()
        yield server
        server.stop()


@pytest.fixture(params=DATABASES)
async def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """A database: empty and not migrated, or for `books` a copy of one that was."""
    is_migrated = "books" in request.fixturenames
    if request.param == "sqlite":
        path = tmp_path / "ledger.db"
        if is_migrated:
            path.write_bytes(await migrated_file())
        yield f"sqlite:///{path}"
        return
    server, name = request.getfixturevalue("postgres_server"), f"pith_{uuid4().hex}"
    await create_database(server, name, migrated=is_migrated)
    yield f"{server}/{name}"
    # A folder of hundreds of databases takes longer to delete than the tests take to run.
    await execute_on_postgres(f"{server}/postgres", f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def books(database_url: str, tmp_path: Path) -> AsyncIterator[Books]:
    clock = DatabaseClock(database_url)
    await clock.set(NOW)
    # On a machine that has much else to do a statement may take seconds.
    database = open_database(database_url, timeout_s=30, clock=clock)
    spool = Spool(tmp_path / "spool.db", max_rows=20)
    ledger = Ledger(database, spool)
    version = await ledger.publish_prices(PRICES, now=NOW)
    accounts = Accounts(database, pepper=PEPPER)
    yield Books(database_url, database, accounts, ledger, spool, version, tmp_path / "spool.db", clock)
    await ledger.close()
    await spool.close()
    await database.close()


@pytest.fixture
def outage(books: Books) -> FakeOutageDatabase:
    """The ledger's database behind a switch; `books.ledger` goes through it."""
    database = FakeOutageDatabase(books.database)
    books.ledger = Ledger(database, books.spool)
    return database
