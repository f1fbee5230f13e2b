"""A ledger on each database that pith supports: SQLite in a file, and a PostgreSQL of this test run's own."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
from redis import Redis
from redis.exceptions import RedisError
from sqlalchemy import text

from billing.accounts import Accounts
from billing.caller import NO_LIMITS, Caller, ProjectLimits
from billing.database import Database, open_database
from billing.ledger import Ledger
from billing.migration import upgrade
from billing.price import Cost, ModelPrice
from billing.spool import Spool
from billing.usage import Hold, Settlement, UsageFigures

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
PEPPER = b"a pepper for the tests only"
PRICES = (
    ModelPrice("model-a", 150_000, 600_000, 20_000),
    ModelPrice("model-b", 0, 0, 0),
)


@dataclass
class Books:
    """One ledger with one paying workspace, and everything that a test wants to do with it."""

    url: str
    database: Database
    accounts: Accounts
    ledger: Ledger
    spool: Spool
    pricing_version: int
    spool_path: Path
    now: datetime = NOW

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
        _, token = await self.accounts.create_key(project.id, "key", now=now)
        return await self.accounts.authenticate(token, now=now)

    async def settle(self, hold: Hold, cost_nano_usd: int = 400, *, now: datetime = NOW) -> Settlement:
        return await self.ledger.settle(
            hold,
            figures=UsageFigures(prompt_tokens=10, completion_tokens=20, cached_tokens=3, stream=True),
            cost=Cost(subtotal_nano_usd=cost_nano_usd, nano_usd=cost_nano_usd, minimum_applied=False),
            outcome="completed",
            now=now,
        )

    async def money(self, caller: Caller) -> tuple[int, int]:
        """Posted and held, as the workspace's row has them, after they were found to match the rows below."""
        assert await self.ledger.differences() == []
        workspace = await self.accounts.find_workspace(caller.workspace_id)
        return workspace.posted_nano_usd, workspace.held_nano_usd

    async def count_events(self) -> int:
        return await self.database.read(
            lambda c: c.execute(text("SELECT count(*) FROM usage_events")).scalar_one()
        )

    async def hold(self, caller: Caller, amount_nano_usd: int = 1000, *, now: datetime = NOW) -> Hold:
        return await self.ledger.hold(
            caller,
            model_id="model-a",
            pricing_version=self.pricing_version,
            amount_nano_usd=amount_nano_usd,
            request_id="request",
            now=now,
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


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL prefix of a PostgreSQL that listens on loopback only and is gone after the run."""
    binaries = _postgres_binaries()
    if binaries is None:
        message = "PostgreSQL was not found; install it (Debian: apt-get install postgresql) to run these"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    user = _unprivileged_user()
    with tempfile.TemporaryDirectory(prefix="pith-postgres-") as folder:
        data = Path(folder) / "data"
        if user is not None:
            shutil.chown(folder, user)
        initialise = [binaries / "initdb", "-D", data, "-U", "pith", "-A", "trust", "-E", "UTF8", "--no-sync"]
        subprocess.run(initialise, check=True, capture_output=True, user=user, cwd=folder)
        port = _free_port()
        options = (
            f"-c fsync=off -c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={folder}"
        )
        control = [binaries / "pg_ctl", "-D", data, "-w", "-l", Path(folder) / "log"]
        # The tests kill processes and connections, never the machine: only that would need "fsync".
        subprocess.run(
            [*control, "-o", options, "start"], check=True, capture_output=True, user=user, cwd=folder
        )
        try:
            yield f"postgresql+asyncpg://pith@127.0.0.1:{port}"
        finally:
            subprocess.run(
                [*control, "-m", "immediate", "stop"], check=True, capture_output=True, user=user, cwd=folder
            )


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


def wait_for(condition: Callable[[], bool], what: str, *, timeout_s: float = 10) -> None:
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


@pytest.fixture(params=["sqlite", "postgresql"])
async def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """An empty database, not migrated."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'ledger.db'}"
        return
    server, name = request.getfixturevalue("postgres_server"), f"pith_{uuid4().hex}"
    await _on_postgres(server, f"CREATE DATABASE {name}")
    yield f"{server}/{name}"
    # A folder of hundreds of databases takes longer to delete than the tests take to run.
    await _on_postgres(server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def books(database_url: str, tmp_path: Path) -> AsyncIterator[Books]:
    await upgrade(database_url)
    database = open_database(database_url)
    spool = Spool(tmp_path / "spool.db", max_rows=20)
    ledger = Ledger(database, spool)
    version = await ledger.publish_prices(PRICES, now=NOW)
    accounts = Accounts(database, pepper=PEPPER)
    yield Books(database_url, database, accounts, ledger, spool, version, tmp_path / "spool.db")
    await ledger.close()
    await spool.close()
    await database.close()


async def _on_postgres(server: str, statement: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(server.replace("+asyncpg", "") + "/postgres")
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def _postgres_binaries() -> Path | None:
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    # Debian keeps the server's programs off the path.
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: path.parts[-3])
    return found[-1].parent if found else None


def _unprivileged_user() -> str | None:
    """PostgreSQL refuses to run as root: the user to run it as, or None for the present one."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in known), None)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
