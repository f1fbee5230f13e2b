"""`pith archive` and `pith spool` as an operator meets them."""

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
from billing.price import Cost, ModelPrice, cost
from billing.store.database import open_database
from billing.transparency import verify
from billing.usage import UsageFigures
from serve.cli.main import app
from serve.cli.storage import Steps
from serve.config.paths import ConfigError
from serve.config.settings import Settings, load_settings
from serve.money.ledger_setup import log_signer, open_accounts
from tests.billing.transparency.logged import sequencer
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
    _, token = await accounts.keys.create("acme/search", "key", now=MOMENTS[0])
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
    # As a server would have done.
    await sequencer(database, by=log_signer(settings)).once()
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
    january = tmp_path / "january.json"
    assert "the proof of 1 leaves" in pith(config, f"statement acme 2025-01 --proof {january}").stderr
    assert verify.main([str(january)]) == 0
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
        _, token = await accounts.keys.create(f"{name}/main", "key", now=NOW)
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
