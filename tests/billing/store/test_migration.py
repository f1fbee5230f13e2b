"""The migrations: up from nothing, again, by two at once, and to the schema that the code expects."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from billing.errors import DatabaseConfigError, LedgerUnavailable, RowRefused
from billing.store.database import open_database
from billing.store.migration import _config, current_revision, upgrade
from billing.store.schema import metadata

if TYPE_CHECKING:
    from tests.billing.conftest import Books

HEAD = ScriptDirectory.from_config(_config()).get_current_head()


async def test_an_empty_database_is_brought_to_the_latest_schema(database_url: str) -> None:
    assert await upgrade(database_url) == HEAD
    assert await current_revision(database_url) == HEAD


def is_no_part(name: str | None, kind: str, _: object) -> bool:
    """On PostgreSQL the months of usage events are tables too, which their whole speaks for."""
    return not (kind == "table" and (name or "").startswith("usage_events_"))


async def test_the_migrated_schema_is_the_one_the_code_uses(database_url: str) -> None:
    await upgrade(database_url)
    database = open_database(database_url)
    opts = {"compare_type": True, "include_name": is_no_part}
    try:
        differences = await database.read(
            lambda c: compare_metadata(MigrationContext.configure(c, opts=opts), metadata)
        )
    finally:
        await database.close()
    assert differences == []


async def test_migrating_again_keeps_what_is_there(books: Books) -> None:
    caller = await books.new_caller()
    await books.settle(await books.hold(caller))
    assert await upgrade(books.url) == HEAD
    assert await books.money(caller) == (400, 0)


@pytest.mark.parametrize(
    ("found", "message"),
    [("9999", f"none after {HEAD}: .* backup"), ("0007", "none before 0019: .*upgrade.md")],
)
async def test_a_ledger_of_another_version_is_refused_with_what_to_do(
    database_url: str, found: str, message: str
) -> None:
    await upgrade(database_url)
    database = open_database(database_url)
    other = text(f"UPDATE alembic_version SET version_num = '{found}'")
    try:
        await database.write(lambda connection: connection.execute(other) and None)
        with pytest.raises(DatabaseConfigError, match=f"revision {found}, and .* {message}"):
            await upgrade(database_url)
        assert await current_revision(database_url) == found
    finally:
        await database.close()


async def test_two_servers_may_migrate_at_once(database_url: str) -> None:
    assert await asyncio.gather(*(upgrade(database_url) for _ in range(4))) == [HEAD] * 4


async def test_a_migration_takes_as_long_as_it_takes(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large ledger: no deadline undoes it, or says that it failed where it did not."""
    slow = "pg_sleep(2)" if database_url.startswith("postgresql") else "pith_pause()"
    migrate = command.upgrade

    def slowly(config: Config, revision: str) -> None:
        connection = config.attributes["connection"]
        if "pith" in slow:
            connection.connection.driver_connection.create_function("pith_pause", 0, lambda: time.sleep(2))
        connection.execute(text(f"SELECT {slow}"))
        migrate(config, revision)

    monkeypatch.setattr(command, "upgrade", slowly)
    assert await upgrade(database_url, timeout_s=1) == HEAD


@pytest.mark.parametrize("table", ["usage_events", "price_lists", "prices"])
@pytest.mark.parametrize("statement", ["DELETE FROM {}", "UPDATE {} SET {} = {}"])
async def test_the_database_refuses_to_rewrite_history(books: Books, table: str, statement: str) -> None:
    await books.settle(await books.hold(await books.new_caller()))
    column = "settled_at" if table == "usage_events" else "version"
    rewriting = text(statement.format(table, column, column))
    with pytest.raises(RowRefused, match="append-only"):
        await books.database.write(lambda c: c.execute(rewriting))


async def test_a_ledger_that_was_never_migrated_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailable, match="does not exist"):
        await current_revision(f"sqlite:///{tmp_path / 'none.db'}")
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("not a url", "not a URL"),
        ("sqlite://", "must name a file"),
        ("sqlite:///:memory:", "must name a file"),
        ("mysql://user:hunter2@host/name", "sqlite or postgresql, not 'mysql'"),
    ],
)
def test_a_database_url_that_cannot_work_is_refused(url: str, message: str) -> None:
    with pytest.raises(DatabaseConfigError, match=message) as caught:
        open_database(url)
    assert "hunter2" not in str(caught.value)
