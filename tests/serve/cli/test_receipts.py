"""`pith receipts`: the receipts that the ledger keeps, by project, time and id."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.price import Cost, ModelPrice
from billing.usage import UsageFigures
from serve.cli.main import app
from serve.config.settings import load_settings
from serve.money.ledger_setup import open_accounts
from tests.migrated import migrated_file
from tests.serve.served import settings_document

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
FIGURES = UsageFigures(100, 40, 0, stream=False)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """acme/search compressed twice, an hour apart, and acme/support once; each also chatted."""
    path = tmp_path / "pith.yaml"
    path.write_text(yaml.safe_dump(settings_document(tmp_path)))
    (tmp_path / "pith.db").write_bytes(asyncio.run(migrated_file()))
    asyncio.run(compressed(path))
    return path


async def compressed(config: Path) -> None:
    settings = load_settings(config)
    database, accounts = await open_accounts(settings)
    spool = Spool(settings.billing.spool_path)
    ledger = Ledger(database, spool)
    version = await ledger.publish_prices([ModelPrice("lexical", 1, 1, 0)], now=NOW)
    await accounts.create_workspace("acme", now=NOW)
    for project, hours in (("search", (0, 1)), ("support", (2,))):
        await accounts.create_project("acme", project, now=NOW)
        _, token = await accounts.keys.create(f"acme/{project}", "key", now=NOW)
        caller = await accounts.authenticate(token, now=NOW)
        for hour in hours:
            for receipt in (None, json.dumps({"original_tokens": 100, "hour": hour})):
                moment = NOW + timedelta(hours=hour)
                hold = await ledger.hold(
                    caller,
                    model_id="lexical",
                    pricing_version=version,
                    amount_nano_usd=9,
                    request_id=f"request-{hour}",
                    now=moment,
                )
                figures = replace(FIGURES, receipt=receipt)
                await ledger.settle(
                    hold, figures=figures, cost=Cost(5, 5, False), outcome="completed", now=moment
                )
    for each in (ledger, spool, database):
        await each.close()


def receipts(config: Path, *arguments: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(app, ["receipts", *arguments, "--config", str(config)])
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def hours(found: list[dict[str, Any]]) -> list[int]:
    return [line["receipt"]["hour"] for line in found]


def test_every_compression_is_a_line_with_its_receipt_and_charge(config: Path) -> None:
    found = receipts(config)
    assert hours(found) == [0, 1, 2]
    first = found[0]
    assert (first["workspace"], first["project"], first["model"]) == ("acme", "search", "lexical")
    assert (first["request_id"], first["charged_usd"]) == ("request-0", "0.000000005")
    assert first["receipt"]["original_tokens"] == 100


def test_they_are_found_by_project_time_and_id(config: Path) -> None:
    assert hours(receipts(config, "--project", "acme/support")) == [2]
    assert hours(receipts(config, "--workspace", "acme", "--limit", "2")) == [1, 2]
    assert hours(receipts(config, "--since", "2026-11-20T13:00", "--until", "2026-11-20T14:00")) == [1]
    assert hours(receipts(config, "--id", "request-1")) == [1]
    assert hours(receipts(config, "--id", receipts(config)[2]["event_id"])) == [2]
    assert receipts(config, "--id", "none") == []


def test_an_unknown_project_is_an_error(config: Path) -> None:
    done = CliRunner().invoke(app, ["receipts", "--project", "acme/none", "--config", str(config)])
    assert done.exit_code == 1 and "acme/none" in str(done.exception)
