"""`pith spool` as an operator meets it: what waits, what was set aside and why, and what becomes of it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from sqlalchemy import text
from typer.testing import CliRunner

from billing.accounts import audit_log
from billing.accounts.audit_log import AuditEntry
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.price import Cost, ModelPrice
from billing.store.database import open_database
from billing.usage import UsageFigures
from serve.cli.main import app
from serve.config.settings import Settings, load_settings
from serve.money.ledger_setup import open_accounts
from tests.migrated import migrated_file
from tests.serve.served import settings_document

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


class Operator:
    """Runs `pith spool` on a ledger and a spool of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "pith.yaml"
        self.config.write_text(yaml.safe_dump(settings_document(folder)))
        (folder / "pith.db").write_bytes(asyncio.run(migrated_file()))

    @property
    def settings(self) -> Settings:
        return load_settings(self.config)

    def spool(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, ["spool", *arguments, "--config", str(self.config)])

    def listed(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.spool("list", "--json").stdout)
        return found

    def audit_log(self) -> list[AuditEntry]:
        async def read() -> list[AuditEntry]:
            database = open_database(self.settings.billing.database_url)
            try:
                return await database.read(audit_log.entries)
            finally:
                await database.close()

        return asyncio.run(read())

    def count_events(self) -> int:
        async def count() -> int:
            database = open_database(self.settings.billing.database_url)
            try:
                counting = text("SELECT count(*) FROM usage_events")
                return await database.read(lambda c: c.execute(counting).scalar_one())
            finally:
                await database.close()

        return asyncio.run(count())

    def spend(self, *, pricing_version: int) -> str:
        """One request's usage, which goes to the spool where the ledger knows no such prices. Its event's id."""
        return asyncio.run(self._spend(pricing_version))

    def publish_prices(self, minimum_nano_usd: int) -> None:
        asyncio.run(self._publish(minimum_nano_usd))

    async def _publish(self, minimum_nano_usd: int) -> None:
        database = open_database(self.settings.billing.database_url)
        price = ModelPrice("alpha", 1, 1, minimum_nano_usd)
        await Ledger(database, Spool(self.settings.billing.spool_path)).publish_prices([price], now=NOW)
        await database.close()

    async def _spend(self, pricing_version: int) -> str:
        database, accounts = await open_accounts(self.settings)
        spool = Spool(self.settings.billing.spool_path)
        ledger = Ledger(database, spool)
        name = f"acme {pricing_version}"
        await accounts.create_workspace(name, now=NOW)
        await accounts.create_project(name, "main", now=NOW)
        _, token = await accounts.create_key(f"{name}/main", "key", now=NOW)
        caller = await accounts.authenticate(token, now=NOW)
        hold = await ledger.hold(
            caller, model_id="alpha", pricing_version=1, amount_nano_usd=9, request_id="r", now=NOW
        )
        await ledger.settle(
            replace(hold, pricing_version=pricing_version),
            figures=UsageFigures(1, 2, 0, stream=False),
            cost=Cost(5, 5, minimum_applied=False),
            outcome="completed",
            now=NOW,
        )
        await ledger.replay_spool()
        for each in (ledger, spool, database):
            await each.close()
        return hold.event_id


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


def test_a_spool_that_never_was_is_empty(operator: Operator) -> None:
    assert operator.spool("list").stdout == "none\n"
    assert operator.listed() == []


def test_what_the_ledger_refused_is_listed_with_its_reason(operator: Operator) -> None:
    operator.publish_prices(1)
    event_id = operator.spend(pricing_version=2)
    (found,) = operator.listed()
    assert (found["event_id"], found["state"]) == (event_id, "set aside")
    assert "refused" in found["refusal"] and found["event"]["cost_nano_usd"] == 5
    shown = operator.spool("list").stdout
    assert f"{event_id}  set aside  request_id=r" in shown and "the ledger refused the row" in shown


def test_an_event_that_is_tried_again_says_what_became_of_it(operator: Operator) -> None:
    operator.publish_prices(1)
    event_id = operator.spend(pricing_version=2)
    assert operator.spool("retry", event_id).stdout.startswith(
        f"{event_id}: set aside again: the ledger refused"
    )
    operator.publish_prices(2)
    assert operator.spool("retry", event_id).stdout == f"{event_id}: in the ledger\n"
    assert (operator.listed(), operator.count_events()) == ([], 1)


def test_an_event_is_dropped_by_its_id_alone_and_printed_in_full(operator: Operator) -> None:
    operator.publish_prices(1)
    dropped, kept = operator.spend(pricing_version=2), operator.spend(pricing_version=3)
    (expected, _) = operator.listed()
    assert json.loads(operator.spool("drop", dropped).stdout) == expected
    assert [each["event_id"] for each in operator.listed()] == [kept]
    entries = [one for one in operator.audit_log() if one.action == "spool.drop"]
    assert [(one.subject, one.workspace_id) for one in entries] == [
        (dropped, expected["event"]["workspace_id"])
    ]
    assert entries[0].actor.startswith("cli:") and entries[0].details["event"]["cost_nano_usd"] == 5


def test_nothing_is_dropped_without_an_entry_in_the_audit_log(operator: Operator) -> None:
    operator.publish_prices(1)
    event_id = operator.spend(pricing_version=2)
    ledger = operator.folder / "pith.db"
    ledger.rename(ledger.with_name("away.db"))
    assert operator.spool("drop", event_id).exit_code != 0
    assert [each["event_id"] for each in operator.listed()] == [event_id]


@pytest.mark.parametrize("command", ["retry", "drop"])
def test_an_event_that_is_not_set_aside_is_an_error(operator: Operator, command: str) -> None:
    done = operator.spool(command, "nonsense")
    assert done.exit_code == 1 and "no event 'nonsense' is set aside" in str(done.exception)
