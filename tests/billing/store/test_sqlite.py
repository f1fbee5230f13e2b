"""What SQLite alone does: group commits, a second process on the file, and a lock that another one holds."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import shutil
import sqlite3
import threading
from contextlib import closing
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import pytest
from sqlalchemy import Connection, event, text

from billing.accounts.accounts import Accounts
from billing.caller import Caller
from billing.errors import LedgerUnavailable, QuotaExceeded, RowRefused
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.price import Cost, ModelPrice
from billing.store.database import Database, open_database
from billing.store.migration import upgrade
from billing.store.sqlite import MAX_GROUP, SqliteDatabase
from billing.usage import UsageFigures

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
PEPPER = b"a pepper for the tests only"


@pytest.fixture
async def database(tmp_path: Path):  # type: ignore[no-untyped-def]
    database = open_database(f"sqlite:///{tmp_path / 'rows.db'}", timeout_s=2)
    await database.write(lambda c: c.execute(text("CREATE TABLE numbers (n INTEGER PRIMARY KEY)")))
    yield database
    await database.close()


def inserting(number: int):  # type: ignore[no-untyped-def]
    def work(connection: Connection) -> int:
        connection.execute(text("INSERT INTO numbers VALUES (:n)"), {"n": number})
        return number

    return work


async def numbers(database: Database) -> list[int]:
    return await database.read(lambda c: list(c.execute(text("SELECT n FROM numbers ORDER BY n")).scalars()))


async def test_a_refused_write_fails_alone_in_its_group(database: Database) -> None:
    wanted = [1, 2, 2, 3, 1, 4]
    results = await asyncio.gather(*(database.write(inserting(n)) for n in wanted), return_exceptions=True)
    assert [n for n in results if isinstance(n, int)] == [1, 2, 3, 4]
    assert sum(isinstance(result, RowRefused) for result in results) == 2
    assert await numbers(database) == [1, 2, 3, 4]


async def test_a_faulty_write_fails_alone_in_its_group(database: Database) -> None:
    def faulty(connection: Connection) -> int:
        inserting(100)(connection)
        raise ZeroDivisionError("a bug")

    works = [inserting(1), faulty, inserting(2)]
    results = await asyncio.gather(*(database.write(work) for work in works), return_exceptions=True)
    assert (results[0], results[2]) == (1, 2)
    assert isinstance(results[1], ZeroDivisionError)
    assert await numbers(database) == [1, 2]


async def test_a_reader_cannot_write(database: Database) -> None:
    with pytest.raises(LedgerUnavailable, match="readonly"):
        await database.read(inserting(1))


async def test_a_write_after_close_is_refused_and_one_before_it_is_done(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path / 'rows.db'}")
    await database.write(lambda c: c.execute(text("CREATE TABLE numbers (n INTEGER PRIMARY KEY)")))
    writing = [asyncio.create_task(database.write(inserting(n))) for n in range(100)]
    await asyncio.sleep(0)
    await database.close()
    assert await asyncio.gather(*writing) == list(range(100))
    with pytest.raises(LedgerUnavailable, match="closed"):
        await database.write(inserting(1))


async def test_a_lock_of_another_process_makes_the_ledger_unavailable_until_it_is_gone(
    database: Database, tmp_path: Path
) -> None:
    other = sqlite3.connect(tmp_path / "rows.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    # SQLite says so, or on a busy machine the wait for its answer is over before that.
    with pytest.raises(LedgerUnavailable, match=r"locked|TimeoutError"):
        await database.write(inserting(1))
    assert await numbers(database) == []
    other.execute("ROLLBACK")
    other.close()
    assert await database.write(inserting(2)) == 2


async def test_the_commit_of_a_settlement_is_synced_and_that_of_a_hold_is_not(database: Database) -> None:
    def synchronous(connection: Connection) -> int:
        return connection.exec_driver_sql("PRAGMA synchronous").scalar_one()

    assert await database.write(synchronous, durable=False) == 1
    assert await database.write(synchronous, durable=True) == 2
    assert await database.write(synchronous, durable=False) == 1
    mode = await database.write(lambda c: c.exec_driver_sql("PRAGMA journal_mode").scalar_one())
    assert mode == "wal"


async def hold_until_refused(url: str, folder: str, caller: Caller) -> int:
    database = open_database(url, timeout_s=30)
    spool = Spool(Path(folder) / "spool.db")
    ledger = Ledger(database, spool)
    held = 0
    try:
        while True:
            await ledger.hold(
                caller,
                model_id="m",
                pricing_version=1,
                amount_nano_usd=1000,
                request_id="r",
                now=NOW,
            )
            held += 1
    except QuotaExceeded:
        return held
    finally:
        await ledger.close()
        await spool.close()
        await database.close()


def hold_in_process(url: str, folder: str, caller: Caller) -> int:
    return asyncio.run(hold_until_refused(url, folder, caller))


async def test_processes_on_one_file_cannot_overspend_together(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    await upgrade(url)
    database = open_database(url)
    accounts = Accounts(database, pepper=PEPPER)
    await accounts.create_workspace("w", spend_limit_nano_usd=100 * 1000, now=NOW)
    await accounts.create_project("w", "p", now=NOW)
    _, token = await accounts.keys.create("w/p", "k", now=NOW)
    caller = await accounts.authenticate(token, now=NOW)
    await Ledger(database, Spool(tmp_path / "spool.db")).publish_prices([ModelPrice("m", 1, 1, 1)], now=NOW)

    # "spawn": a fork would copy threads' locks and SQLite's, which neither survives.
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        jobs = [pool.apply_async(hold_in_process, (url, str(tmp_path / str(n)), caller)) for n in range(3)]
        held = [await asyncio.to_thread(job.get, 60) for job in jobs]

    assert sum(held) == 100
    assert (await accounts.find_workspace("w")).held_nano_usd == 100 * 1000
    await database.close()


async def test_writes_of_one_turn_of_the_loop_share_a_commit_and_more_than_a_group_do_not(
    tmp_path: Path,
) -> None:
    database = open_database(f"sqlite:///{tmp_path / 'rows.db'}")
    begun: list[int] = []

    def note(connection: Connection) -> int:
        driver = connection.connection.driver_connection
        assert driver is not None
        if not begun:
            driver.set_trace_callback(lambda sql: begun.append(1) if sql.startswith("BEGIN") else None)
        return 1

    await database.write(note)
    assert sum(await asyncio.gather(*(database.write(note) for _ in range(MAX_GROUP + 1)))) == MAX_GROUP + 1
    assert len(begun) == 2
    await database.close()


async def test_a_write_that_is_cancelled_before_its_turn_is_not_run(database: Database) -> None:
    writing = asyncio.ensure_future(database.write(inserting(1)))
    await asyncio.sleep(0)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    await database.write(inserting(2))
    assert await numbers(database) == [2]


async def test_what_was_submitted_is_written_when_the_database_is_closed_in_the_same_turn(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'rows.db'}"
    database = open_database(url)
    await database.write(lambda c: c.execute(text("CREATE TABLE numbers (n INTEGER PRIMARY KEY)")))
    writing = asyncio.ensure_future(database.write(inserting(1)))
    closing = asyncio.ensure_future(database.close())
    assert await writing == 1
    await closing
    with pytest.raises(LedgerUnavailable):
        await database.write(inserting(2))


def test_a_database_outlives_the_event_loop_that_wrote_to_it_last(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path / 'rows.db'}")

    async def leave_one_behind() -> None:
        abandoned = asyncio.ensure_future(database.write(lambda c: 1))
        await asyncio.sleep(0)
        abandoned.cancel()

    asyncio.run(leave_one_behind())
    assert asyncio.run(database.write(lambda c: 2)) == 2
    asyncio.run(database.close())


async def test_a_request_costs_five_statements_and_no_more(tmp_path: Path) -> None:
    """Two for its hold and three for its settlement: leases, months, write-offs and sums of usage add none."""
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    await upgrade(url)
    database = open_database(url)
    accounts, ledger = Accounts(database, pepper=PEPPER), Ledger(database, Spool(tmp_path / "spool.db"))
    await accounts.create_workspace("w", spend_limit_nano_usd=100, monthly_limit_nano_usd=100, now=NOW)
    await accounts.create_project("w", "p", now=NOW)
    _, token = await accounts.keys.create("w/p", "k", now=NOW)
    caller = await accounts.authenticate(token, now=NOW)
    await ledger.publish_prices([ModelPrice("m", 1, 1, 1)], now=NOW)
    # The month of the workspace's row is the machine's from here on.
    first = await ledger.hold(
        caller, model_id="m", pricing_version=1, amount_nano_usd=9, request_id="r", now=NOW
    )
    await ledger.release(first, now=NOW)
    statements: list[str] = []

    def trace(connection: Connection) -> None:
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.set_trace_callback(statements.append)

    try:
        await database.write(trace)
        statements.clear()
        hold = await ledger.hold(
            caller, model_id="m", pricing_version=1, amount_nano_usd=9, request_id="r", now=NOW
        )
        await ledger.settle(
            hold,
            figures=UsageFigures(1, 2, 0, stream=False),
            cost=Cost(5, 5, minimum_applied=False),
            outcome="completed",
            now=NOW,
        )
        # A trigger's work is told as the statement that set it off, once more.
        asked = [one for one, _ in groupby(statements)]
        work = [one.split()[0] for one in asked if one.split()[0] in ("INSERT", "UPDATE", "DELETE", "SELECT")]
        assert work == ["UPDATE", "INSERT", "DELETE", "UPDATE", "INSERT"], statements
    finally:
        await ledger.close()
        await database.close()


def with_a_log_of_another(folder: Path) -> Path:
    """A database whose log, and the index beside it, are as a process that was killed left them."""
    source = folder / "source.db"
    with closing(sqlite3.connect(source, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE numbers (n INTEGER PRIMARY KEY)")
        for ending in ("", "-wal", "-shm"):
            shutil.copy(f"{source}{ending}", f"{folder / 'left.db'}{ending}")
    return folder / "left.db"


def unable_to_write_the_index(database: Database) -> None:
    """Its next reader goes on as SQLite does by itself where it gets no handle for writing."""
    assert isinstance(database, SqliteDatabase)

    @event.listens_for(database._reading, "do_connect", once=True)
    def read_only(_: object, __: object, arguments: list[str], options: dict[str, object]) -> None:
        path = arguments[0]
        arguments[0], options["uri"] = f"file:{path}?readonly_shm=1", True


@pytest.mark.parametrize("same", [True, False], ids=["its own", "that of another database of the process"])
async def test_a_reader_that_once_could_not_open_the_index_for_writing_keeps_no_writer_from_it(
    tmp_path: Path, same: bool
) -> None:
    url = f"sqlite:///{with_a_log_of_another(tmp_path)}"
    database = open_database(url)
    reading = database if same else open_database(url)
    unable_to_write_the_index(reading)
    try:
        assert await numbers(reading) == []
        with pytest.raises(LedgerUnavailable, match="readonly"):
            await database.write(inserting(1))
        assert await database.write(inserting(2)) == 2
        assert await numbers(reading) == [2]
    finally:
        await database.close()
        await reading.close()


async def test_nor_does_one_that_was_in_use_then(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{with_a_log_of_another(tmp_path)}")
    unable_to_write_the_index(database)
    has_begun, is_over = threading.Event(), threading.Event()

    def read(connection: Connection) -> object:
        connection.execute(text("SELECT n FROM numbers")).all()
        has_begun.set()
        return is_over.wait(10)

    # It is closed, not left to the collector, whose turn may be long in coming.
    gc.disable()
    try:
        reading = asyncio.create_task(database.read(read))
        assert await asyncio.to_thread(has_begun.wait, 10)
        with pytest.raises(LedgerUnavailable, match="readonly"):
            await database.write(inserting(1))
        is_over.set()
        assert await reading
        assert await database.write(inserting(2)) == 2
    finally:
        gc.enable()
        is_over.set()
        await database.close()
