"""`pith archive` as an operator meets it: what it would do, what it did, and what the other commands say then."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.price import ModelPrice, cost
from billing.usage import UsageFigures
from serve.cli.main import app
from serve.cli.storage import Steps
from serve.config.paths import ConfigError
from serve.config.settings import load_settings
from serve.money.ledger_setup import open_accounts
from tests.migrated import migrated_file
from tests.serve.served import settings_document

PRICE = ModelPrice("lexical", 50_000, 0, 0)
MOMENTS = (datetime(2025, 1, 10, tzinfo=UTC), datetime(2025, 2, 10, tzinfo=UTC))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return of_years(tmp_path)


def of_years(folder: Path, **sections: Any) -> Path:
    """The configuration of a ledger with a compression in each of two months long ago, and one of now."""
    path, document = folder / "pith.yaml", settings_document(folder, **sections)
    document["billing"] |= {"archive": {"keep_months": 2, "folder": str(folder / "old")}}
    path.write_text(yaml.safe_dump(document))
    (folder / "pith.db").write_bytes(asyncio.run(migrated_file()))
    asyncio.run(compressed(path))
    return path


async def compressed(config: Path) -> None:
    settings = load_settings(config)
    database, accounts = await open_accounts(settings)
    spool = Spool(settings.billing.spool_path)
    ledger = Ledger(database, spool)
    version = await ledger.publish_prices([PRICE], now=MOMENTS[0])
    await accounts.create_workspace("acme", now=MOMENTS[0])
    await accounts.create_project("acme", "search", now=MOMENTS[0])
    _, token = await accounts.create_key("acme/search", "key", now=MOMENTS[0])
    caller = await accounts.authenticate(token, now=MOMENTS[0])
    for moment in (*MOMENTS, datetime.now(UTC)):
        hold = await ledger.hold(
            caller,
            model_id="lexical",
            pricing_version=version,
            amount_nano_usd=10**6,
            request_id=f"r{moment:%m}",
            now=moment,
        )
        figures = UsageFigures(1000, 0, 0, stream=False, receipt=json.dumps({"at": str(moment)}))
        due = cost(PRICE, prompt_tokens=1000, completion_tokens=0, minimum=True)
        await ledger.settle(hold, figures=figures, cost=due, outcome="completed", now=moment)
    for each in (ledger, spool, database):
        await each.close()


def pith(config: Path, command: str) -> Result:
    return CliRunner().invoke(app, [*command.split(), "--config", str(config)])


def test_old_months_go_to_files_and_every_command_says_so(config: Path, tmp_path: Path) -> None:
    first, second, _ = (json.loads(line)["event_id"] for line in pith(config, "receipts").stdout.splitlines())
    before = pith(config, "usage --by model,day").stdout
    planned = pith(config, "archive --dry-run")
    assert planned.stdout == "2025-01: events in the ledger: 1\n2025-02: events in the ledger: 1\n"
    assert not list((tmp_path / "old").glob("*"))

    done = pith(config, "archive")
    assert done.exit_code == 0, done.output
    assert done.stdout == f"archived in {tmp_path / 'old'}: 2025-01, 2025-02\n"
    assert "2025-01: sealed" in done.stderr and "2025-02: dropped" in done.stderr
    assert pith(config, "archive").stdout.endswith("nothing: no month is due\n")
    assert pith(config, "archive --check").stdout == f"{tmp_path / 'old'}: 2 files, as they were proven\n"

    assert pith(config, "usage --by model,day").stdout == before
    for command in ("reconcile", "reconcile --full", "reconcile --rebuild"):
        found = pith(config, command)
        assert found.exit_code == 0 and found.stdout.endswith("clean: everything adds up\n")
    for command in ("receipts", "export events"):
        found = pith(config, command)
        assert f"of 2025-01, 2025-02, which are archived in {tmp_path / 'old'}" in found.stderr
        assert len(found.stdout.splitlines()) == (1 if command == "receipts" else 0)
    assert "archived" not in pith(config, "receipts --since 2025-03-01").stderr
    statement = pith(config, "statement acme 2025-01").stdout
    assert "The events of this month are archived" in statement
    found = pith(config, f"archive --find {first}")
    assert json.loads(found.stdout)["event_id"] == first and "usage-2025-01-001.parquet" in found.stderr
    for command, words in (
        (f"archive --admit {second}", "was charged"),
        ("archive --find ffff", "of no month that is archived"),
        (f"adjustment refund {first} --reason x", "credit the workspace instead"),
        ("usage --since 2025-01-10T01:00", "ask for whole days"),
    ):
        refused = pith(config, command)
        assert refused.exit_code == 1 and words in str(refused.exception)
    backup = pith(config, f"backup {tmp_path / 'copy'}")
    assert backup.exit_code == 0 and f"copy {tmp_path / 'old'} too" in backup.stderr
    assert [one.split()[2] for one in pith(config, "audit").stdout.splitlines() if "archive." in one]


def test_nothing_is_archived_unless_the_configuration_says_so(config: Path) -> None:
    document = yaml.safe_load(config.read_text())
    del document["billing"]["archive"]
    config.write_text(yaml.safe_dump(document))
    refused = pith(config, "archive")
    assert isinstance(refused.exception, ConfigError) and "keep_months: not set" in str(refused.exception)
    assert "give one of them" in str(pith(config, "archive --check --dry-run").exception)


def test_the_many_steps_of_a_delete_are_said_once_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    moments = iter((0.0, 1.0, 61.0, 61.0, 62.0))
    say = Steps(lambda: next(moments))
    for step in ("1000 events deleted", "2000 events deleted", "dropped", "3000 events deleted"):
        say(step)
    assert capsys.readouterr().err == "2000 events deleted\ndropped\n"
