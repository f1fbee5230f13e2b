"""A ledger that the baseline made, with money in it, goes up through every version: nothing is rewritten."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from billing.accounts.accounts import Accounts
from billing.books.books import Books as Reader
from billing.books.invariants import wrong_rows
from billing.books.mispriced import mispriced_events
from billing.books.usage_report import usage
from billing.collections.collection import NANO_PER_CENT
from billing.collections.collector import Collector
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.store import migration
from billing.store.database import Database, open_database
from billing.store.migration import _config, newest_revision, upgrade
from billing.usage import mint_event_id

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
EARLIER = datetime(2026, 10, 3, 7, 30, tzinfo=UTC)
TABLES = ("workspaces", "projects", "api_keys", "price_lists", "prices", "holds", "usage_events")
POSTED = 60_000_000_000


LATER = """
from alembic import op

revision = "later"
down_revision = "{before}"


def upgrade():
    op.execute("ALTER TABLE workspaces ADD COLUMN greeting VARCHAR(16) DEFAULT 'hello' NOT NULL")
"""


def revisions() -> list[str]:
    """All of them, the first first."""
    return [script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()][::-1]


def fill(connection: Connection) -> None:
    """Rows with the columns that have no default, and no others."""
    insert(connection, "price_lists", version=1, created_at=EARLIER)
    insert(
        connection,
        "prices",
        version=1,
        model_id="m",
        input_micro_usd_per_mtok=10**6,
        output_micro_usd_per_mtok=2 * 10**6,
        minimum_nano_usd=20_000,
    )
    for name, posted, month in (("spender", POSTED, POSTED), ("idle", 0, 0)):
        insert(
            connection,
            "workspaces",
            id=f"ws_{name}",
            name=name,
            billing_enabled=True,
            posted_nano_usd=posted,
            held_nano_usd=1000 if posted else 0,
            month="2026-10",
            month_posted_nano_usd=month,
            created_at=EARLIER,
        )
        insert(
            connection,
            "projects",
            id=f"prj_{name}",
            workspace_id=f"ws_{name}",
            name="p",
            metered=True,
            created_at=EARLIER,
        )
        insert(
            connection,
            "api_keys",
            id=f"key{name}",
            project_id=f"prj_{name}",
            name="k",
            digest="0" * 64,
            created_at=EARLIER,
        )
    for _ in range(60):
        insert(connection, "usage_events", **event_fields(mint_event_id(EARLIER)))
    insert(
        connection,
        "holds",
        event_id=mint_event_id(NOW),
        workspace_id="ws_spender",
        amount_nano_usd=1000,
        created_at=NOW,
    )


def event_fields(event_id: str) -> dict[str, Any]:
    return {
        "event_id": event_id,
        "request_id": "r",
        "workspace_id": "ws_spender",
        "project_id": "prj_spender",
        "key_id": "keyspender",
        "model_id": "m",
        "pricing_version": 1,
        "prompt_tokens": 10**6 - 2,
        "completion_tokens": 1,
        "cached_tokens": 0,
        "subtotal_nano_usd": 1_000_000_000,
        "minimum_applied": False,
        "cost_nano_usd": 1_000_000_000,
        "outcome": "completed",
        "stream": False,
        "created_at": EARLIER,
        "settled_at": EARLIER,
    }


def insert(connection: Connection, table: str, **values: Any) -> None:
    if connection.dialect.name == "sqlite":
        # As the driver stores them.
        values = {
            name: value.strftime("%Y-%m-%d %H:%M:%S.%f") if isinstance(value, datetime) else value
            for name, value in values.items()
        }
    columns = ", ".join(values)
    places = ", ".join(f":{name}" for name in values)
    connection.execute(text(f"INSERT INTO {table} ({columns}) VALUES ({places})"), values)


def rows(connection: Connection) -> dict[str, list[Mapping[str, Any]]]:
    """Every row of these tables with where it physically lies, which a rewrite would change."""
    place = (
        "rowid AS place"
        if connection.dialect.name == "sqlite"
        else "ctid::text || ' ' || xmin::text AS place"
    )
    return {
        table: [
            row._mapping
            for row in connection.execute(text(f"SELECT {place}, t.* FROM {table} t ORDER BY 1")).all()
        ]
        for table in TABLES
    }


def files(connection: Connection) -> dict[str, Any]:
    """The page or file that each table begins at: a table that was made anew begins at another."""
    if connection.dialect.name == "sqlite":
        statement = "SELECT name, rootpage FROM sqlite_master WHERE type = 'table'"
    else:
        statement = "SELECT relname, pg_relation_filenode(oid) FROM pg_class WHERE relkind = 'r'"
    found = {name: place for name, place in connection.execute(text(statement)).all()}
    # On PostgreSQL the events of before are a part of their table by now, as they are.
    return {table: found.get(f"{table}_before", found.get(table)) for table in TABLES}


@pytest.fixture
def later_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of a migration after all that there are: it adds a column, as CONTRIBUTING.md says."""
    folder, newest = tmp_path / "migrations", newest_revision()
    copytree(migration.MIGRATIONS, folder, ignore=ignore_patterns("__pycache__"))
    (folder / "versions" / "later.py").write_text(LATER.format(before=newest))
    monkeypatch.setattr(migration, "MIGRATIONS", folder)
    return "later"


async def test_a_ledger_of_the_first_version_goes_up_through_every_version_and_reconciles(
    database_url: str, later_revision: str, tmp_path: Path
) -> None:
    first, *later = revisions()
    assert later[-1] == later_revision
    await upgrade(database_url, revision=first)
    database = open_database(database_url)
    await database.write(fill)
    before, places = await database.read(rows), await database.read(files)
    await database.close()

    for revision in later:
        assert await upgrade(database_url, revision=revision) == revision
        database = open_database(database_url)
        after = await database.read(rows)
        assert await database.read(files) == places
        for table in TABLES:
            for old, new in zip(before[table], after[table], strict=True):
                assert {name: new[name] for name in old} == dict(old)
        await database.close()

    database = open_database(database_url)
    spool = Spool(tmp_path / "spool.db")
    try:
        await works_at_the_latest(database, spool)
    finally:
        await spool.close()
        await database.close()


async def works_at_the_latest(database: Database, spool: Spool) -> None:
    reader, collector = Reader(database), Collector(database, actor="test")
    found = await reader.reconcile(spool)
    assert found.is_clean and found.totals.posted_nano_usd == POSTED and found.totals.collected_nano_usd == 0

    (made,) = await collector.cut_due(threshold_cents=500, now=NOW)
    assert made.nano_usd == made.cents * NANO_PER_CENT == POSTED
    assert await Ledger(database, spool).replay_spool()
    assert await Accounts(database, pepper=b"a pepper for the tests").change_workspace(
        "idle", {"billing_enabled": False}
    )
    assert (await reader.reconcile(spool)).is_clean
    month = await reader.statement("spender", "2026-10")
    assert month.used_nano_usd == month.closing.owed_nano_usd == POSTED
    (line,) = month.usage
    assert (line.tokens_saved, line.saved_nano_usd, line.compression_nano_usd) == (0, 0, 0)
    assert month.comparisons == ()


async def test_sums_by_label_are_those_of_the_events_that_were_there(database_url: str) -> None:
    await upgrade(database_url, revision="0027")
    database = open_database(database_url)

    def labelled(connection: Connection, settled: datetime) -> None:
        named = ({"person": "psn_a", "tags": "a,b.c"}, {"person": "psn_a"}, {"tags": "a"}, {})
        for number, labels in enumerate(named, 1):
            event = event_fields(mint_event_id(settled)) | {
                "written_off_nano_usd": number,
                "settled_at": settled,
            }
            insert(connection, "usage_events", **event, **labels)

    try:
        await database.write(fill)
        for settled in (EARLIER, NOW):
            await database.write(partial(labelled, settled=settled))
        await upgrade(database_url)
        read = partial(usage, by=["person"])
        (line,) = await database.read(read)
        assert (line.requests, line.cost_nano_usd) == (4, 4 * 10**9 - 6)
        assert await wrong_rows(database) == []
        # From here on the trigger adds, to the same rows.
        await database.write(partial(labelled, settled=NOW))
        assert [one.requests for one in await database.read(read)] == [6]
        tags = await database.read(partial(usage, by=["tag", "month"]))
        assert {(one.group["tag"], one.group["month"], one.requests) for one in tags} == {
            ("a", "2026-10", 2),
            ("a", "2026-11", 4),
            ("b.c", "2026-10", 1),
            ("b.c", "2026-11", 2),
        }
        assert await wrong_rows(database) == []
    finally:
        await database.close()


async def test_rows_that_say_only_what_has_no_default_are_read(database_url: str) -> None:
    """While replicas are replaced one by one, an old one meets the new tables."""
    await upgrade(database_url)
    database = open_database(database_url)
    try:
        await database.write(fill)
        (row,) = [
            one for one in await Accounts(database, pepper=b"p" * 32).list_workspaces() if one.name == "idle"
        ]
        assert row.collected_nano_usd == 0
        # Its events and prices have none of the columns with a default, and are proved all the same.
        assert await database.read(partial(mispriced_events, from_id="", until_id=None)) == []
    finally:
        await database.close()
