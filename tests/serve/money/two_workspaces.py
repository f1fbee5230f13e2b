"""A ledger with two workspaces that both spent, and what it has of each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
import yaml
from click.testing import Result
from sqlalchemy import text
from typer.testing import CliRunner

from billing.collections.collector import Collector
from billing.ledger.budget_settings import Budgets
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.price import Cost
from billing.store.database import Database, open_database
from billing.usage import UsageFigures
from billing.webhooks.webhooks import Webhooks
from serve.catalog.offered import catalog_of
from serve.cli.main import app
from serve.config.settings import load_settings
from serve.money.ledger_setup import open_accounts, prices_of, read_pepper
from tests.migrated import migrated_file
from tests.serve.served import settings_document

MINE, THEIRS = "mine", "theirs"
COST = Cost(5 * 10**8, 5 * 10**8, minimum_applied=False)
# Each table whose rows are a workspace's, and how they are found.
OWNED = {
    "workspaces": "id = :w",
    "projects": "workspace_id = :w",
    "api_keys": "project_id IN (SELECT id FROM projects WHERE workspace_id = :w)",
    "key_months": "key_id IN (SELECT k.id FROM api_keys k JOIN projects p ON p.id = k.project_id "
    "WHERE p.workspace_id = :w)",
    "workspace_months": "workspace_id = :w",
    "holds": "workspace_id = :w",
    "usage_events": "workspace_id = :w",
    "usage_days": "workspace_id = :w",
    "usage_months": "workspace_id = :w",
    "label_days": "workspace_id = :w",
    "label_months": "workspace_id = :w",
    "checkpoint_sums": "workspace_id = :w",
    "collections": "workspace_id = :w",
    "adjustments": "workspace_id = :w",
    "archived_days": "workspace_id = :w",
    "archived_refunds": "workspace_id = :w",
    "audit_log": "workspace_id = :w",
    "originals": "project_id IN (SELECT id FROM projects WHERE workspace_id = :w)",
    "original_totals": "project_id IN (SELECT id FROM projects WHERE workspace_id = :w)",
    "webhook_endpoints": "workspace_id = :w",
    "webhook_events": "workspace_id = :w",
    "webhook_deliveries": "endpoint_id IN (SELECT id FROM webhook_endpoints WHERE workspace_id = :w)",
    "limit_alerts": "workspace_id = :w",
    "budgets": "workspace_id = :w",
    "budget_counters": "budget_id IN (SELECT id FROM budgets WHERE workspace_id = :w)",
    "rate_counters": "rate_counters.id LIKE :w || ':%' OR EXISTS (SELECT 1 FROM projects p LEFT JOIN api_keys k "
    "ON k.project_id = p.id WHERE p.workspace_id = :w AND (rate_counters.id LIKE p.id || ':%' OR "
    "rate_counters.id LIKE 'key:' || k.id || ':%'))",
}


async def rows_of(database: Database, workspace_id: str) -> dict[str, list[Any]]:
    found = {}
    for table, where in OWNED.items():
        statement = text(f"SELECT * FROM {table} WHERE {where} ORDER BY 1, 2")
        rows = await database.read(lambda c, s=statement: c.execute(s, {"w": workspace_id}).all())
        found[table] = [tuple(row) for row in rows]
    return found


@dataclass(frozen=True)
class Ledgers:
    """A ledger with two workspaces that both spent, and how to run a command on it."""

    config: Path
    ids: dict[str, dict[str, str]]

    def run(self, command: str, arguments: str) -> Result:
        words = [
            *command.split(),
            *arguments.format(**self.ids[MINE], month=f"{datetime.now(UTC):%Y-%m}").split(),
        ]
        return CliRunner().invoke(app, [*words, "--config", str(self.config)])

    def rows(self, workspace: str) -> dict[str, list[Any]]:
        return asyncio.run(self._rows(self.ids[workspace]["workspace"]))

    async def _rows(self, workspace_id: str) -> dict[str, list[Any]]:
        database = open_database(load_settings(self.config).billing.database_url)
        try:
            return await rows_of(database, workspace_id)
        finally:
            await database.close()


async def two_that_spent(folder: Path, **sections: Any) -> Ledgers:
    config = folder / "pith.yaml"
    config.write_text(yaml.safe_dump(settings_document(folder, **sections)))
    (folder / "pith.db").write_bytes(await migrated_file())
    return Ledgers(config, await _spent(config))


async def _spent(config: Path) -> dict[str, dict[str, str]]:
    settings, ids, now = load_settings(config), {}, datetime.now(UTC)
    database, accounts = await open_accounts(settings)
    ledger = Ledger(database, Spool(settings.billing.spool_path))
    version = await ledger.publish_prices(prices_of(catalog_of(settings), ()), now=now)
    for name in (MINE, THEIRS):
        workspace = await accounts.create_workspace(name, now=now)
        project = await accounts.create_project(name, "p", now=now)
        record, token = await accounts.keys.create(f"{name}/p", "k", now=now)
        caller = await accounts.authenticate(token, now=now)
        budget = await Budgets(database, "test").set("project", project.id, "month", 10**9, now=now)
        hold = await ledger.hold(
            replace(caller, person=f"psn_of_{name}", tags=("shared", f"of-{name}")),
            model_id="alpha",
            pricing_version=version,
            amount_nano_usd=COST.nano_usd,
            request_id="same",
            now=now,
        )
        figures = UsageFigures(10, 10, 0, False, receipt=json.dumps({"of": name}))
        await ledger.settle(hold, figures=figures, cost=COST, outcome="completed", now=now)
        webhooks = Webhooks(database, pepper=read_pepper(settings.state_dir), actor="test")
        webhook, _ = await webhooks.add(f"https://{name}.example/hook", workspace=name)
        made = await Collector(database, actor="test").cut_now(name, now=now)
        (told,) = await webhooks.deliveries(webhook.id)
        assert made is not None
        ids[name] = {
            "workspace": workspace.id,
            "project": project.id,
            "key": record.id,
            "collection": made.id,
            "event": hold.event_id,
            "webhook": webhook.id,
            "told": told.event_id,
            "budget": budget.id,
        }
    await database.close()
    return ids


def commands(group: typer.Typer, *names: str) -> Iterator[str]:
    for command in group.registered_commands:
        assert command.callback is not None
        yield " ".join((*names, command.name or command.callback.__name__))
    for inner in group.registered_groups:
        assert inner.typer_instance is not None and inner.name
        yield from commands(inner.typer_instance, *names, inner.name)
