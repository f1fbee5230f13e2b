"""Nobody else on the machine reads the ledger, its spool or what lies beside them: `billing.store.private_files`."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from billing.store.database import open_database
from billing.store.migration import upgrade
from billing.store.private_files import make_database_private, make_folder_private

if TYPE_CHECKING:
    from tests.billing.conftest import Books


@pytest.fixture(autouse=True)
def careless_umask() -> object:
    before = os.umask(0o000)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    return {path.name: oct(path.stat().st_mode & 0o777) for path in folder.iterdir() if path.is_file()}


async def test_a_new_ledger_and_its_log_are_private(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    await upgrade(url)
    database = open_database(url)
    await database.write(lambda c: c.exec_driver_sql("PRAGMA user_version = 1"))
    found = modes(tmp_path)
    await database.close()
    assert "ledger.db-wal" in found and set(found.values()) == {"0o600"}, found


async def test_one_that_is_there_already_becomes_private(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    await upgrade(url)
    for name in ("ledger.db", "ledger.db-wal", "ledger.db-shm"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o644)
    database = open_database(url)
    await database.write(lambda c: c.exec_driver_sql("PRAGMA user_version = 1"))
    found = modes(tmp_path)
    await database.close()
    assert len(found) == 3 and set(found.values()) == {"0o600"}, found


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_the_spool_is_private(books: Books) -> None:
    await books.spool.require_writable()
    found = modes(books.spool_path.parent)
    assert found["spool.db"] == "0o600" and set(found.values()) == {"0o600"}


def test_a_folder_that_all_share_stays_as_it_is(tmp_path: Path) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    shared.mkdir()
    shared.chmod(0o1777)
    own.mkdir()
    own.chmod(0o755)
    for folder in (shared, own, tmp_path / "none"):
        make_folder_private(folder)
    assert (shared.stat().st_mode & 0o7777, own.stat().st_mode & 0o7777) == (0o1777, 0o700)


TRY_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit("locked")
"""


def test_a_ledger_that_is_made_private_keeps_the_locks_of_its_connections(tmp_path: Path) -> None:
    """SQLite's are of this kind. Without its own, a server's log was deleted by the next command that ended."""
    path = tmp_path / "pith.db"
    make_database_private(path)
    assert path.stat().st_mode & 0o777 == 0o600
    with path.open("r+b") as connection:
        fcntl.lockf(connection, fcntl.LOCK_SH | fcntl.LOCK_NB)
        path.chmod(0o644)
        make_database_private(path)
        assert path.stat().st_mode & 0o777 == 0o600
        other = subprocess.run(
            [sys.executable, "-c", TRY_LOCK, str(path)], capture_output=True, text=True, check=False
        )
    assert other.stderr.strip() == "locked"
