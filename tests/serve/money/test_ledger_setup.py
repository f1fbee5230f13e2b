"""What the server finds in its ledger and its folder when it starts, however often, and however many at once."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.accounts.accounts import Accounts
from billing.caller import NO_LIMITS
from billing.errors import InvalidKey, LedgerUnavailable
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.price import ModelPrice
from billing.store.database import open_database
from serve.catalog.offered import catalog_of
from serve.config.paths import ConfigError
from serve.config.server_settings import DemoSettings
from serve.config.settings import Settings
from serve.money.ledger_setup import (
    PEPPER_BYTES,
    digest_of_pepper,
    open_accounts,
    prepare_ledger,
    prices_of,
    read_pepper,
    require_pepper,
)
from tests.serve.served import settings_document

ROOT = Path(__file__).resolve().parents[3]
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def settings_in(folder: Path, **fields: Any) -> Settings:
    return Settings.model_validate(settings_document(folder, **fields))


async def prepare(settings: Settings) -> str | None:
    return await prepare_ledger(settings, catalog_of(settings), now=NOW)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_the_demo_key_works_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    # Whatever the shell's mask lets through.
    old = os.umask(0)
    try:
        key = await prepare(settings)
    finally:
        os.umask(old)
    assert key is not None
    assert settings.demo.key_path.read_text() == key + "\n"
    assert mode(settings.demo.key_path) == 0o600
    assert mode(settings.state_dir / "pepper") == 0o600
    database, accounts = await open_accounts(settings)
    caller = await accounts.authenticate(key, now=NOW)
    assert caller.metered and caller.limits == NO_LIMITS
    await database.close()


async def test_the_demo_key_is_kept_while_it_is_valid(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    assert await prepare(settings) == await prepare(settings)
    database, accounts = await open_accounts(settings)
    assert len(await accounts.keys.listed()) == 1
    await database.close()


async def test_a_revoked_demo_key_is_replaced(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    first = await prepare(settings)
    assert first is not None
    database, accounts = await open_accounts(settings)
    await accounts.keys.revoke(first, now=NOW)
    settings.demo.key_path.chmod(0o644)
    second = await prepare(settings)
    assert second is not None and second != first
    assert settings.demo.key_path.read_text() == second + "\n"
    assert mode(settings.demo.key_path) == 0o600
    assert (await accounts.authenticate(second, now=NOW)).metered
    with pytest.raises(InvalidKey):
        await accounts.authenticate(first, now=NOW)
    await database.close()


@pytest.mark.parametrize(
    "content", [b"", b"nonsense\n", b"\xff\xfe", b"pith_" + b"0" * 16 + b"_" + b"0" * 43]
)
async def test_a_key_file_that_holds_no_valid_key_is_replaced(tmp_path: Path, content: bytes) -> None:
    settings = settings_in(tmp_path)
    settings.demo.key_path.write_bytes(content)
    key = await prepare(settings)
    assert key is not None
    assert settings.demo.key_path.read_text() == key + "\n"
    assert mode(settings.demo.key_path) == 0o600


async def test_a_key_file_that_is_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    settings.demo.key_path.symlink_to(elsewhere)
    await prepare(settings)
    assert elsewhere.read_text() == "mine" and not settings.demo.key_path.is_symlink()


async def test_a_start_that_died_between_workspace_and_project_is_made_good(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    database, accounts = await open_accounts(settings)
    await accounts.create_workspace("demo", now=NOW)
    await database.close()
    assert await prepare(settings) is not None


async def demo_limit(settings: Settings) -> int | None:
    database, accounts = await open_accounts(settings)
    workspace = await accounts.find_workspace("demo")
    await database.close()
    return workspace.monthly_limit_nano_usd


def with_limit(settings: Settings, usd: str | None) -> Settings:
    demo = DemoSettings(
        key_path=settings.demo.key_path, monthly_limit_usd=None if usd is None else Decimal(usd)
    )
    return settings.model_copy(update={"demo": demo})


async def test_the_demo_has_a_limit_of_its_own_and_one_that_was_there_before_gets_it(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, demo={"key_path": str(tmp_path / "demo-key")})
    assert settings.demo.monthly_limit_usd == 25
    # As an earlier version left it.
    key = await prepare(with_limit(settings, None))
    assert await demo_limit(settings) is None
    assert await prepare(settings) == key
    assert await demo_limit(settings) == 25 * 10**9
    await prepare(with_limit(settings, "0.5"))
    assert await demo_limit(settings) == 5 * 10**8
    await prepare(with_limit(settings, None))
    assert await demo_limit(settings) is None


async def test_another_workspaces_key_in_the_demos_file_is_left_without_the_demos_limit(
    tmp_path: Path,
) -> None:
    settings = settings_in(tmp_path, demo={"key_path": str(tmp_path / "demo-key")})
    database, accounts = await open_accounts(settings)
    await accounts.create_workspace("mine", now=NOW)
    await accounts.create_project("mine", "main", now=NOW)
    _, key = await accounts.keys.create("mine/main", "main", now=NOW)
    settings.demo.key_path.write_text(key + "\n")
    assert await prepare(settings) == key
    (workspace,) = await accounts.list_workspaces()
    assert (workspace.name, workspace.monthly_limit_nano_usd) == ("mine", None)
    await database.close()


async def test_without_a_demo_there_is_no_key(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, demo={"enabled": False, "key_path": str(tmp_path / "demo-key")})
    assert await prepare(settings) is None
    assert not settings.demo.key_path.exists()
    database, accounts = await open_accounts(settings)
    assert await accounts.list_workspaces() == []
    await database.close()


async def test_prices_are_published_once_and_again_when_one_changes(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    await prepare(settings)
    await prepare(settings)
    database = open_database(settings.billing.database_url)
    ledger = Ledger(database, Spool(settings.billing.spool_path))
    found = await ledger.current_prices()
    assert found.version == 1
    assert set(found.prices) == set(prices_of(catalog_of(settings), settings.compression.models))

    dearer = settings_document(tmp_path)
    dearer["models"][2]["price"]["output_usd_per_mtok"] = "401"
    await prepare(Settings.model_validate(dearer))
    assert (await ledger.current_prices()).version == 2
    await database.close()


def test_a_compression_models_price_is_its_inputs_alone_and_nothing_by_default(tmp_path: Path) -> None:
    models = [
        {"id": "dear", "name": "D", "blurb": "B", "kind": "lexical", "price_usd_per_mtok_input": "0.05"},
        {"id": "free", "name": "F", "blurb": "B", "kind": "lexical"},
    ]
    settings = Settings.model_validate({**settings_document(tmp_path), "compression": {"models": models}})
    prices = prices_of(catalog_of(settings), settings.compression.models)
    assert prices[-2:] == [ModelPrice("dear", 50_000, 0, 0), ModelPrice("free", 0, 0, 0)]


async def test_folders_that_are_not_there_are_made(tmp_path: Path) -> None:
    settings = settings_in(tmp_path / "a" / "b")
    assert await prepare(settings) is not None


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "var").write_text("a file in the way")
    with pytest.raises(ConfigError, match=f"cannot make the folder {tmp_path / 'var'}: "):
        await prepare(settings_in(tmp_path))
    with pytest.raises(ConfigError, match=f"cannot make the folder {tmp_path / 'var'}: "):
        await open_accounts(settings_in(tmp_path))


async def test_a_ledger_that_is_no_database_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "pith.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(LedgerUnavailable):
        await prepare(settings_in(tmp_path))


async def test_a_pepper_of_the_wrong_size_is_refused_and_left_alone(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    settings.state_dir.mkdir()
    pepper = settings.state_dir / "pepper"
    for content in (b"", b"x" * (PEPPER_BYTES - 1), b"x" * (PEPPER_BYTES + 1)):
        pepper.write_bytes(content)
        with pytest.raises(ConfigError, match=f"{pepper}: holds {len(content)} bytes, not {PEPPER_BYTES}"):
            await prepare(settings)
        with pytest.raises(ConfigError, match="restore it from a backup"):
            await open_accounts(settings)
        assert pepper.read_bytes() == content


async def test_another_pepper_makes_every_key_invalid(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    key = await prepare(settings)
    assert key is not None
    (settings.state_dir / "pepper").unlink()
    database = open_database(settings.billing.database_url)
    with pytest.raises(InvalidKey):
        await Accounts(database, pepper=read_pepper(settings.state_dir)).authenticate(key, now=NOW)
    await database.close()


def test_a_pepper_is_made_once_and_read_from_then_on(tmp_path: Path) -> None:
    first = read_pepper(tmp_path / "state")
    assert len(first) == PEPPER_BYTES and first != bytes(PEPPER_BYTES)
    assert read_pepper(tmp_path / "state") == first != read_pepper(tmp_path / "another")
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["pepper"]


def test_a_machine_with_another_pepper_or_none_is_refused_and_makes_none(tmp_path: Path) -> None:
    read_pepper(tmp_path)
    digest = digest_of_pepper(tmp_path)
    assert digest is not None
    require_pepper(tmp_path, digest)
    (tmp_path / "joined").mkdir()
    with pytest.raises(ValueError, match="joined/pepper is not there: copy"):
        require_pepper(tmp_path / "joined", digest)
    assert list((tmp_path / "joined").iterdir()) == []
    read_pepper(tmp_path / "joined")
    with pytest.raises(ValueError, match="joined/pepper is another one: copy"):
        require_pepper(tmp_path / "joined", digest)


def test_processes_that_start_at_the_same_time_agree_on_one_pepper(tmp_path: Path) -> None:
    # Each says that it is there, and waits until all may go on.
    code = (
        "import sys; from pathlib import Path; from serve.money.ledger_setup import read_pepper; "
        "print('there', flush=True); sys.stdin.readline(); "
        "print(read_pepper(Path(sys.argv[1])).hex())"
    )
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "state")],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for racer in racers:
        assert racer.stdout is not None and racer.stdout.readline() == "there\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    peppers = {racer.communicate(timeout=120)[0] for racer in racers}
    assert [racer.returncode for racer in racers] == [0] * 4
    assert peppers == {(tmp_path / "state" / "pepper").read_bytes().hex() + "\n"}
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["pepper"]
