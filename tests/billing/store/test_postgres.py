"""What PostgreSQL alone does: connections that die, a server that never answers, and many replicas."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg  # type: ignore[import-untyped]
import pytest
from sqlalchemy import Connection, text

from billing.errors import LedgerUnavailable
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.store.database import open_database

if TYPE_CHECKING:
    from tests.billing.conftest import Books

pytestmark = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)

KILL_THE_OTHERS = text(
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


async def test_after_a_restart_the_first_request_is_served(books: Books) -> None:
    caller = await books.new_caller()
    for _ in range(3):
        await asyncio.gather(*(books.hold(caller) for _ in range(10)))
        killer = open_database(books.url)
        await killer.read(lambda c: c.execute(KILL_THE_OTHERS))
        await killer.close()
        assert (await books.settle(await books.hold(caller))).persisted


async def test_while_it_recovers_from_a_killed_process_requests_wait(books: Books) -> None:
    caller = await books.new_caller()
    database = open_database(books.url, timeout_s=60)
    observer, has_begun = await asyncpg.connect(books.url.replace("+asyncpg", "")), asyncio.Event()
    observer.add_termination_listener(lambda connection: has_begun.set())
    victim = await database.read(lambda c: c.scalar(text("SELECT pg_backend_pid()")))
    os.kill(victim, signal.SIGKILL)
    await asyncio.wait_for(has_begun.wait(), 60)
    assert await asyncio.gather(*(database.read(_one) for _ in range(20))) == [1] * 20
    await database.close()
    assert (await books.settle(await books.hold(caller))).persisted


def _one(connection: Connection) -> object:
    return connection.scalar(text("SELECT 1"))


async def test_sweepers_at_once_close_every_dead_hold_once(books: Books) -> None:
    callers = [await books.new_caller() for _ in range(3)]
    for caller in callers:
        await asyncio.gather(*(books.hold(caller, 1000) for _ in range(10)))
    await books.at(books.now + timedelta(minutes=5))
    await asyncio.gather(*(books.sweep() for _ in range(4)))
    for caller in callers:
        assert await books.money(caller) == (0, 0)


async def test_a_row_that_another_transaction_keeps_locked_makes_a_settlement_degraded(
    books: Books, tmp_path: Path
) -> None:
    caller = await books.new_caller()
    hold = await books.hold(caller)
    impatient = open_database(books.url, timeout_s=0.3)
    ledger = Ledger(impatient, books.spool)
    locked, unlock = asyncio.Event(), asyncio.Event()

    async def keep_locked() -> None:
        connection = await asyncpg.connect(books.url.replace("+asyncpg", ""))
        async with connection.transaction():
            await connection.execute("SELECT * FROM workspaces FOR UPDATE")
            locked.set()
            await unlock.wait()
        await connection.close()

    keeping = asyncio.create_task(keep_locked())
    await locked.wait()
    books.ledger, patient = ledger, books.ledger
    assert (await books.settle(hold)).status == "degraded"
    unlock.set()
    await keeping
    await ledger.close()
    await impatient.close()
    books.ledger = patient
    assert (await patient.replay_spool()).posted == 1
    assert await books.money(caller) == (400, 0)


@pytest.fixture
async def silent_server(database_url: str) -> AsyncIterator[str]:
    """A port that accepts connections and never says a word, as a stopped PostgreSQL does."""

    async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(ignore, "127.0.0.1", 0)
    yield f"postgresql://pith@127.0.0.1:{server.sockets[0].getsockname()[1]}/ledger"
    server.close()
    await server.wait_closed()


async def test_a_server_that_never_answers_is_unavailable_in_time(silent_server: str, tmp_path: Path) -> None:
    database = open_database(silent_server, timeout_s=0.3)
    spool = Spool(tmp_path / "spool.db")
    started = time.monotonic()
    with pytest.raises(LedgerUnavailable):
        await database.read(lambda c: c.execute(text("SELECT 1")))
    # asyncpg alone would wait for a minute.
    assert time.monotonic() - started < 30
    await spool.close()
    await database.close()


async def test_a_server_that_is_not_there_is_unavailable(database_url: str) -> None:
    database = open_database("postgresql://pith@127.0.0.1:1/ledger", timeout_s=1)
    with pytest.raises(LedgerUnavailable, match="unavailable"):
        await database.write(lambda c: c.execute(text("SELECT 1")))
    await database.close()
