"""Originals go when their time is over, by a server's upkeep, and when an operator says so."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry
from sqlalchemy import text
from typer.testing import CliRunner

from billing.accounts.accounts import Accounts
from billing.caller import Caller
from billing.ledger.leases import LeaseTimes
from billing.ledger.spool import Spool
from billing.store.database import Database, open_database
from serve.app import open_ledger, open_originals
from serve.cli.main import app
from serve.config.settings import Settings, load_settings
from serve.metrics.background import OriginalMetrics, UpkeepMetrics
from serve.money.ledger_setup import open_accounts
from serve.money.upkeep import begin_upkeep
from serve.originals.originals import Original
from tests.migrated import migrated_file
from tests.serve.served import settings_document


async def ledger_in(folder: Path, **billing: Any) -> tuple[Settings, Database, Accounts]:
    document = settings_document(folder)
    document["billing"] |= billing
    (folder / "pith.yaml").write_text(yaml.safe_dump(document))
    (folder / "pith.db").write_bytes(await migrated_file())
    settings = load_settings(folder / "pith.yaml")
    database, accounts = await open_accounts(settings)
    return settings, database, accounts


async def caller_in(accounts: Accounts, name: str) -> Caller:
    now = datetime.now(UTC)
    await accounts.create_workspace(name, now=now)
    await accounts.create_project(name, "p", now=now)
    _, token = await accounts.create_key(f"{name}/p", "k", now=now)
    return await accounts.authenticate(token, now=now)


async def keep(settings: Settings, database: Database, caller: Caller, *ids: str) -> None:
    originals = open_originals(settings, database, OriginalMetrics(CollectorRegistry()))
    kept = await originals.keep(caller, [Original(id_, "the text") for id_ in ids], retain_s=600)
    assert kept.until.keys() == set(ids)


async def ids_in(database: Database) -> list[str]:
    statement = text("SELECT id FROM originals ORDER BY id")
    return await database.read(lambda c: list(c.execute(statement).scalars()))


async def test_a_servers_upkeep_deletes_what_has_expired_and_counts_it(tmp_path: Path) -> None:
    settings, database, accounts = await ledger_in(tmp_path, upkeep_s=0.02)
    spool, registry = Spool(settings.billing.spool_path), CollectorRegistry()
    ledger = open_ledger(settings, database, spool)
    caller, revoked = [await caller_in(accounts, name) for name in ("acme", "gone")]
    await keep(settings, database, caller, "a", "b")
    await keep(settings, database, revoked, "c")
    await database.write(lambda c: c.execute(text("UPDATE originals SET expires_at = 1 WHERE id = 'a'")))
    await accounts.revoke_workspace("gone", now=datetime.now(UTC))
    background = begin_upkeep(settings, database, ledger, LeaseTimes(), UpkeepMetrics(registry))
    try:
        async with asyncio.timeout(60):
            while await ids_in(database) != ["b"]:  # noqa: ASYNC110 - nothing signals it
                await asyncio.sleep(0.02)
    finally:
        await background.stop()
        await ledger.close()
        await spool.close()
        await database.close()
    counted = [
        registry.get_sample_value("pith_originals_deleted_total", {"reason": reason})
        for reason in ("expired", "revoked", "unfinished")
    ]
    assert counted == [1, 1, 0]


def test_an_operator_deletes_all_that_a_project_has(tmp_path: Path) -> None:
    async def prepare() -> None:
        settings, database, accounts = await ledger_in(tmp_path)
        await keep(settings, database, await caller_in(accounts, "acme"), "a", "b")
        await keep(settings, database, await caller_in(accounts, "other"), "c")
        await database.close()

    async def left() -> list[str]:
        database = open_database(load_settings(tmp_path / "pith.yaml").billing.database_url)
        try:
            return await ids_in(database)
        finally:
            await database.close()

    def pith(*words: str) -> Any:
        done = CliRunner().invoke(app, [*words, "--json", "--config", str(tmp_path / "pith.yaml")])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    asyncio.run(prepare())
    had = pith("project", "forget-originals", "acme/p")
    assert had["originals"] == 2 and asyncio.run(left()) == ["c"]
    entry = pith("audit", "--workspace", "acme")[-1]
    assert (entry["action"], entry["details"]) == ("project.forget", had)
    assert pith("project", "forget-originals", "acme/p") == {"originals": 0, "bytes": 0}
