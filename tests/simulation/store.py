"""A database of the simulated world: a real SQLite in memory, in which one transaction runs at a time.

What PostgreSQL may do between two transactions that run at once is not here: that is tests/billing's and tests/faults'.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import StaticPool

from billing.store.database import Work, translated_errors
from billing.store.dates import install_clock
from billing.store.migration import upgrade

STATEMENT_CHARS = 260
# What of the transparency log a trace would show otherwise each time.
_OF_RANDOM_ROOTS = ("UPDATE log_", "DELETE FROM log_")


class Store:
    """One SQLite, used again by schedule after schedule. `clock` is what its SQL takes for the time."""

    def __init__(self, *, migrated: bool) -> None:
        self.driver = sqlite3.connect(":memory:", isolation_level=None, cached_statements=1000)
        if migrated:
            _copy_migrated(self.driver)
        self.driver.execute("PRAGMA foreign_keys=ON")
        # The database's own clock: seconds since 1970.
        self.clock: Callable[[], float] = time.time
        install_clock(self.driver, lambda: self.clock())
        engine = create_engine("sqlite://", creator=lambda: self.driver, poolclass=StaticPool)
        self._connection: Connection = engine.connect()
        self.commits = 0
        # At the end of a schedule: whoever calls then is told that there is no database.
        self.is_closed = False
        self.on_commit: Callable[[], None] = lambda: None
        # What was written since somebody looked, where a trace is wanted.
        self.statements: list[str] = []

    def transact(self, work: Work[Any]) -> Any:
        """Run the work and commit it, or roll it back and raise what `Database` documents."""
        self.driver.execute("SAVEPOINT work")
        try:
            with translated_errors():
                result = work(self._connection)
        except BaseException:
            self.driver.execute("ROLLBACK TO work")
            self.driver.execute("RELEASE work")
            raise
        self.driver.execute("RELEASE work")
        self.commits += 1
        self.on_commit()
        return result

    def read(self, work: Work[Any]) -> Any:
        with translated_errors():
            return work(self._connection)

    def trace(self) -> None:
        """From now on keep the text of each statement that writes."""
        self.driver.set_trace_callback(self._keep)

    def _keep(self, statement: str) -> None:
        # The probe of the spool has the real time in it.
        if statement.startswith(_OF_RANDOM_ROOTS):
            return
        if statement.startswith(("INSERT INTO u", "INSERT INTO h", "INSERT INTO s", "UPDATE", "DELETE")):
            self.statements.append(" ".join(statement.split())[:STATEMENT_CHARS])

    def begin(self) -> None:
        """What is written from here on is forgotten by `forget`: one transaction around a schedule's own."""
        self.driver.execute("BEGIN")

    def forget(self) -> None:
        """Every row is as it was at `begin`: no trigger is asked, and no statement prepared anew."""
        self.driver.execute("ROLLBACK")


def _copy_migrated(target: sqlite3.Connection) -> None:
    with tempfile.TemporaryDirectory(prefix="pith-simulation-") as folder:
        path = Path(folder) / "migrated.db"
        asyncio.run(upgrade(f"sqlite:///{path}"))
        source = sqlite3.connect(path)
        source.backup(target)
        source.close()
