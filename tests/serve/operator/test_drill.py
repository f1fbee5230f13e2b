"""The drill of docs/operations/backup.md: load, a backup in its middle, a restore elsewhere, and the books there."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from billing.caller import NO_LIMITS
from billing.ledger.recording import replay
from billing.ledger.spool import Spool
from billing.store.private_files import FILE_MODE
from billing.webhooks.secret_box import SecretBox
from serve.cli.main import app
from serve.config.settings import load_anchored
from serve.money.ledger_setup import read_pepper
from tests.serve.served import Served, serving, settings_document

ALLOWANCE = {"offline_allowance_usd": "1"}


def document(folder: Path) -> dict[str, Any]:
    found = settings_document(folder)
    found["billing"] |= ALLOWANCE
    return found


def configured(folder: Path) -> Path:
    """A configuration file whose server keeps all it writes in `folder`."""
    folder.mkdir()
    path = folder / "pith.yaml"
    path.write_text(yaml.safe_dump(document(folder)))
    return path


def pith(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


async def done(*words: str | Path) -> str:
    """What a command prints that an operator runs beside the service."""
    result = await asyncio.to_thread(pith, *words)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


async def ask(service: Served, key: str, names: list[str]) -> None:
    """Requests at once, each charged."""
    replies = await asyncio.gather(*(service.chat(key=key, request_id=name).run() for name in names))
    assert {reply.status for reply in replies} == {200}


def charged(config: Path) -> list[str]:
    """The request id of each usage event in the ledger."""
    path = load_anchored(config).billing.database_url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path)) as ledger:
        return [row[0] for row in ledger.execute("SELECT request_id FROM usage_events ORDER BY 1")]


def names(kind: str, count: int) -> list[str]:
    return [f"{kind}-{number}" for number in range(count)]


async def test_the_drill(tmp_path: Path) -> None:
    here, there, backup = configured(tmp_path / "here"), configured(tmp_path / "there"), tmp_path / "backup"
    billing = document(tmp_path / "here")["billing"]
    async with serving(tmp_path / "here", billing=billing) as service:
        key = await service.new_key("acme", limits=NO_LIMITS)
        (service.settings.state_dir / "files").mkdir()
        (service.settings.state_dir / "files/one").write_bytes(b"lines of a batch")
        await ask(service, key, names("before", 5))
        service.database.is_down = True
        await ask(service, key, names("spooled", 2))
    # Another process, whose ledger is there from the start.
    async with serving(tmp_path / "here", billing=billing) as service:
        copying = asyncio.create_task(done("backup", backup, "--config", here))
        await ask(service, key, names("meanwhile", 20))
        await copying
        assert (await service.ledger.replay_spool()).posted == 2
        await ask(service, key, names("after", 3))
        assert len(charged(here)) == 30

    await done("restore", backup, "--config", there)
    await done("reconcile", "--config", there)
    kept = charged(there)
    # What was settled after the backup is what a restore loses, and all of it.
    assert len(kept) == len(set(kept)) and set(names("before", 5)) <= set(kept)
    assert not set(kept) & {*names("after", 3), *names("spooled", 2)}
    posted = await goes_on(tmp_path / "there", key, backup)
    await done("reconcile", "--config", there)
    now = charged(there)
    assert len(now) == len(set(now)) == len(kept) + posted + 1
    assert set(now) >= {*kept, *names("spooled", 2), "restored"} and not set(now) & set(names("after", 3))


async def goes_on(folder: Path, key: str, backup: Path) -> int:
    """Keys work, files of batches are there, and usage that waited is charged once, however often it is replayed.

    How many events were charged that had waited."""
    async with serving(folder, billing=document(folder)["billing"]) as service:
        await ask(service, key, ["restored"])
        replayed = await service.ledger.replay_spool()
        # The spool of the machine that was lost turns up, with what the restored one had replayed.
        shutil.copy(backup / "spool.db", folder / "old-spool.db")
        old = Spool(folder / "old-spool.db")
        found = await replay(old, service.database)
        await old.close()
        assert (found.posted, found.known) == (0, replayed.posted + replayed.known)
        assert (service.settings.state_dir / "files/one").read_bytes() == b"lines of a batch"
        return replayed.posted


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A backup of an empty ledger; beside it `here`, its configuration, and `there`, where there is nothing yet."""
    here = configured(tmp_path / "here")
    assert pith("workspace", "create", "acme", "--config", here).exit_code == 0
    assert pith("backup", tmp_path / "backup", "--config", here).exit_code == 0
    configured(tmp_path / "there")
    return tmp_path


def is_refused(*words: str | Path, saying: str) -> None:
    """The command ends with one line and writes nothing."""
    folder = next(word.parent for word in words if isinstance(word, Path) and word.name == "pith.yaml")
    before = sorted(folder.rglob("*"))
    result = pith(*words)
    assert result.exit_code != 0 and saying in str(result.exception), (result.output, result.exception)
    assert sorted(folder.rglob("*")) == before


def test_a_backup_is_for_its_owner_alone_and_never_written_over(made: Path) -> None:
    files = [path for path in (made / "backup").rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"ledger.db", "pepper", "config.yaml", "manifest.json"}
    assert {path.stat().st_mode & 0o777 for path in files} == {FILE_MODE}
    assert (made / "backup").stat().st_mode & 0o077 == 0
    is_refused("backup", made / "backup", "--config", made / "here/pith.yaml", saying="exists")


def test_a_file_of_admin_keys_that_the_configuration_names_is_in_the_backup(tmp_path: Path) -> None:
    for side in ("here", "there"):
        path = configured(tmp_path / side)
        path.write_text(yaml.safe_dump(document(tmp_path / side) | {"ops": {"admin_key_file": "keys/admin"}}))
    keys = tmp_path / "here/keys/admin"
    keys.parent.mkdir()
    keys.write_text("a key of the administrator's own\n")
    assert pith("workspace", "create", "acme", "--config", tmp_path / "here/pith.yaml").exit_code == 0
    assert pith("backup", tmp_path / "backup", "--config", tmp_path / "here/pith.yaml").exit_code == 0
    assert pith("restore", tmp_path / "backup", "--config", tmp_path / "there/pith.yaml").exit_code == 0
    assert (tmp_path / "there/keys/admin").read_text() == keys.read_text()


def test_a_restore_overwrites_nothing(made: Path) -> None:
    is_refused("restore", made / "backup", "--config", made / "here/pith.yaml", saying="overwrites nothing")


@pytest.mark.parametrize("name", ["ledger.db", "pepper"])
def test_a_backup_that_was_changed_or_is_not_whole_is_not_restored(made: Path, name: str) -> None:
    there, path = made / "there/pith.yaml", made / "backup" / name
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    is_refused("restore", made / "backup", "--config", there, saying=name)
    path.unlink()
    is_refused("restore", made / "backup", "--config", there, saying=name)
    (made / "backup/manifest.json").unlink()
    is_refused("restore", made / "backup", "--config", there, saying="not finished")


def test_the_secrets_of_the_backup_open_what_the_ledger_has_sealed(made: Path) -> None:
    assert pith("restore", made / "backup", "--config", made / "there/pith.yaml").exit_code == 0
    peppers = [read_pepper(load_anchored(made / side / "pith.yaml").state_dir) for side in ("here", "there")]
    sealed = SecretBox(peppers[0]).seal("whe_1", "whsec_")
    assert SecretBox(peppers[1]).open("whe_1", sealed) == "whsec_"
