"""`pith statement --proof` and `pith verify`: a customer checks a month, and sees that an operator changed a row."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from billing.caller import Caller
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.store.database import open_database
from billing.store.migration import newest_revision
from billing.transparency.sequencer import Sequencer
from serve.config.settings import load_settings
from serve.money.ledger_setup import log_signer, open_accounts
from serve.operator.backup import copy_database, copy_file
from tests.serve.cli.commands import Done
from tests.serve.cli.test_books import On, config, edit, on, on_ledger, use

__all__ = ["config", "on"]


async def grown(config: Path) -> None:
    settings = load_settings(config)
    database = open_database(settings.billing.database_url)
    try:
        signer = log_signer(settings)
        now = datetime.now(UTC)
        await Sequencer(database, signer, revision=newest_revision(), clock=lambda: now).once()
    finally:
        await database.close()


def sequence(config: Path) -> None:
    asyncio.run(grown(config))


def going_on(config: Path, work: Callable[[Ledger], Awaitable[None]]) -> None:
    """What a server does on a ledger that is there, until it is in the log."""

    async def run() -> None:
        settings = load_settings(config)
        database, _ = await open_accounts(settings)
        spool = Spool(settings.billing.spool_path)
        ledger = Ledger(database, spool)
        try:
            await work(ledger)
            await grown(config)
        finally:
            await ledger.close()
            await spool.close()
            await database.close()

    asyncio.run(run())


@pytest.fixture
def verify(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    from serve.cli.main import main

    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["pith", "verify", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return Done(int(ended.value.code or 0), *capsys.readouterr())

    return run


async def three(ledger: object, caller: object) -> None:
    for tokens in (100, 200, 300):
        await use(ledger, caller, tokens)  # type: ignore[arg-type]


def test_a_customer_sees_that_a_row_was_changed(
    on: On, config: Path, tmp_path: Path, verify: Callable[..., Done]
) -> None:
    on_ledger(config, three)
    file, later = tmp_path / "november.json", tmp_path / "later.json"
    sequence(config)
    done = on("statement", "acme", "2026-11", "--proof", file)
    assert done.code == 0 and "the proof of 3 leaves, 0 pending" in done.err
    assert file.stat().st_mode & 0o777 == 0o600
    done = verify(file)
    assert done.code == 0 and done.out.startswith("proven: 3 leaves")
    edit(config, "DROP TRIGGER usage_events_no_update")
    edit(config, "UPDATE usage_events SET prompt_tokens = prompt_tokens + 10 WHERE prompt_tokens = 200")
    done = on("statement", "acme", "2026-11", "--proof", later, "--from-size", 3)
    assert "1 rows are not what was logged" in done.err
    done = verify(later, "--checkpoint", file)
    assert done.code == 1 and "omitted: " in done.out and "NOT proven" in done.out


def test_a_ledger_that_was_restored_from_an_old_backup_and_went_on_is_a_fork(
    on: On, config: Path, tmp_path: Path, verify: Callable[..., Done]
) -> None:
    ledger_file, backup = tmp_path / "pith.db", tmp_path / "backup.db"

    async def before(ledger: Ledger, caller: Caller) -> Caller:
        await use(ledger, caller, 100)
        await grown(config)
        copy_database(ledger_file, backup)
        # A customer is shown this one, which the backup lacks.
        await use(ledger, caller, 200)
        await grown(config)
        return caller

    caller = on_ledger(config, before)
    old, forked, short = tmp_path / "old.json", tmp_path / "forked.json", tmp_path / "short.json"
    assert on("statement", "acme", "2026-11", "--proof", old).code == 0
    for path in tmp_path.glob("pith.db*"):
        path.unlink()
    copy_file(backup, ledger_file)
    assert on("statement", "acme", "2026-11", "--proof", short).code == 0
    done = verify(short, "--checkpoint", old)
    assert done.code == 1 and "history: the old checkpoint has more leaves" in done.out
    going_on(config, lambda ledger: use(ledger, caller, 300))
    going_on(config, lambda ledger: use(ledger, caller, 400))
    assert on("statement", "acme", "2026-11", "--proof", forked, "--from-size", 2).code == 0
    assert verify(forked).code == 0, "by itself it is a log as any other"
    done = verify(forked, "--checkpoint", old)
    assert done.code == 1 and "history: the log was rewritten since, or forked" in done.out


def test_a_month_without_a_checkpoint_has_no_proof_and_no_file(on: On, config: Path, tmp_path: Path) -> None:
    on_ledger(config, three)
    done = on("statement", "acme", "2026-11", "--proof", tmp_path / "proof.json")
    assert done.code == 1 and "no signed checkpoint yet" in done.err
    assert not (tmp_path / "proof.json").exists()


def test_another_secret_than_the_logs_proves_nothing(on: On, config: Path, tmp_path: Path) -> None:
    on_ledger(config, three)
    sequence(config)
    settings = load_settings(config)
    (settings.state_dir / "pepper").write_bytes(bytes(32))
    done = on("statement", "acme", "2026-11", "--proof", tmp_path / "proof.json")
    assert done.code == 1 and "another secret" in done.err


def test_verify_takes_every_option_of_the_program(tmp_path: Path, verify: Callable[..., Done]) -> None:
    (tmp_path / "-proof.json").write_text("{}")
    options = ("--key", "a", "--receipts", tmp_path, "--all-receipts", "--checkpoint", "b", "--witness", "c")
    done = verify(*options, "--", tmp_path / "-proof.json")
    assert done.code == 1 and "'c' is no key for this" in done.out
