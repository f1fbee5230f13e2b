"""What must be in the ledger before the server starts: its tables, the price list in force, the demo key."""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from billing.accounts import Accounts
from billing.database import Database, open_database
from billing.errors import AccountExists, InvalidKey
from billing.ledger import Ledger
from billing.migration import upgrade
from billing.price import ModelPrice
from billing.spool import Spool
from models.catalog import Catalog
from serve.compression_settings import CompressionModelSettings
from serve.pepper import read_pepper
from serve.settings import ConfigError, Settings

DEMO = "demo"
REPORT_TIMEOUT_S = 600.0


async def prepare_ledger(settings: Settings, catalog: Catalog, *, now: datetime) -> str | None:
    """Migrate, publish the prices, and return the demo key, or None when the demo is off.

    Raises `ConfigError`, `billing.errors.LedgerUnavailable` or `DatabaseConfigError`.
    """
    make_folders(settings)
    await upgrade(settings.billing.database_url)
    database = open_database(settings.billing.database_url)
    try:
        prices = prices_of(catalog, settings.compression.models)
        await Ledger(database, Spool(settings.billing.spool_path)).publish_prices(prices, now=now)
        if not settings.demo.enabled:
            return None
        accounts = Accounts(database, pepper=pepper_of(settings))
        return await demo_key(accounts, settings.demo.key_path, now=now)
    finally:
        await database.close()


async def open_accounts(settings: Settings) -> tuple[Database, Accounts]:
    """The accounts for a command that changes them; close the database after use."""
    make_folders(settings)
    pepper = pepper_of(settings)
    await upgrade(settings.billing.database_url)
    database = open_database(settings.billing.database_url)
    return database, Accounts(database, pepper=pepper, actor=operator())


async def open_books(settings: Settings) -> Database:
    """The ledger for a command that reads all of it, which may take minutes; close it after use."""
    make_folders(settings)
    await upgrade(settings.billing.database_url)
    return open_database(settings.billing.database_url, timeout_s=REPORT_TIMEOUT_S)


def operator() -> str:
    """Who runs this command, for the audit log."""
    try:
        return f"cli:{pwd.getpwuid(os.getuid()).pw_name}"
    except KeyError:
        return f"cli:{os.getuid()}"


def make_folders(settings: Settings) -> None:
    """Raises `ConfigError` for a folder that cannot be made."""
    folders = [settings.state_dir, settings.billing.spool_path.parent]
    scheme, _, path = settings.billing.database_url.partition(":///")
    if scheme == "sqlite":
        folders.append(Path(path).parent)
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot make the folder {folder}: {error.strerror}") from error


def pepper_of(settings: Settings) -> bytes:
    """Raises `ConfigError` for a pepper that is none."""
    try:
        return read_pepper(settings.state_dir)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def prices_of(catalog: Catalog, compressors: Sequence[CompressionModelSettings]) -> list[ModelPrice]:
    """The prices of the catalog and of the compression models, in billing's terms."""
    chat = [
        ModelPrice(
            model_id=model.id,
            input_micro_usd_per_mtok=model.input_micro_usd_per_mtok,
            output_micro_usd_per_mtok=model.output_micro_usd_per_mtok,
            minimum_nano_usd=model.minimum_nano_usd,
        )
        for model in catalog.models
    ]
    return chat + [
        ModelPrice(
            model_id=model.id,
            input_micro_usd_per_mtok=int(model.price_usd_per_mtok_input * 10**6),
            output_micro_usd_per_mtok=0,
            minimum_nano_usd=0,
        )
        for model in compressors
    ]


async def demo_key(accounts: Accounts, path: Path, *, now: datetime) -> str:
    """The key in `path` while it is valid, else a new one, written there for its owner alone."""
    kept = _kept_key(path)
    if kept is not None:
        try:
            await accounts.authenticate(kept, now=now)
            return kept
        except InvalidKey:
            pass
    # Apart, since a start may have died between them.
    with suppress(AccountExists):
        await accounts.create_workspace(DEMO, now=now)
    with suppress(AccountExists):
        await accounts.create_project(DEMO, DEMO, now=now)
    _, key = await accounts.create_key(f"{DEMO}/{DEMO}", DEMO, now=now)
    _keep_key(path, key)
    return key


def _kept_key(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return None


def _keep_key(path: Path, key: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(key + "\n")
