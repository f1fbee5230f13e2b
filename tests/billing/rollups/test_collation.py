"""A PostgreSQL whose database orders texts as English does, which most are: its events are proven like any other's."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from benchmarks.ledger.postgres_server import PostgresNotFound, private_postgres
from billing.books.books import Books as Reader
from billing.store.migration import upgrade
from tests.migrated import execute_on_postgres

if TYPE_CHECKING:
    from tests.billing.conftest import Books

pytestmark = pytest.mark.integration


@pytest.fixture
def english_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """With the C library's own collation for English, which ignores what it does not know."""
    with tempfile.TemporaryDirectory(prefix="pith-locale-") as folder:
        # The server runs as another user.
        os.chmod(folder, 0o755)
        command = ["localedef", "-i", "en_US", "-f", "UTF-8", str(Path(folder) / "en_US.UTF-8")]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("no locales to make; install them (Debian: apt-get install locales) to run these")
        monkeypatch.setenv("LOCPATH", folder)
        monkeypatch.setenv("LC_ALL", "en_US.UTF-8")
        try:
            with private_postgres(fsync=False) as server:
                yield server
        except PostgresNotFound as error:
            pytest.skip(f"{error} to run these")


@pytest.fixture
async def database_url(english_server: str) -> str:
    await execute_on_postgres(f"{english_server}/postgres", "CREATE DATABASE english")
    await upgrade(f"{english_server}/english")
    return f"{english_server}/english"


async def test_the_newest_events_are_proven_whatever_the_order_of_texts(books: Books) -> None:
    ordering = text("SELECT datcollate FROM pg_database WHERE datname = current_database()")
    assert await books.database.read(lambda c: c.execute(ordering).scalar()) == "en_US.UTF-8"
    # 400 nano-dollars are not what its tokens cost.
    await books.settle(await books.hold(await books.new_caller()), 400)
    (event,) = await books.events()
    for full in (False, True):
        found = await Reader(books.database).reconcile(books.spool, full=full)
        assert found.events_read == 1 and [one.event_id for one in found.mispriced] == [event.event_id]
