"""The ledger at the start of a server and of a command: its secret, its migrations, its prices."""

from __future__ import annotations

import hashlib
import os
import pwd
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from billing.accounts.accounts import Accounts
from billing.errors import AccountExists, InvalidKey, UnknownAccount
from billing.ledger.ledger import Ledger
from billing.ledger.price_list import change_prices
from billing.ledger.spool import Spool
from billing.price import ModelPrice
from billing.store.database import Database, open_database, parse_url
from billing.store.durable_files import make_folder, make_once
from billing.store.migration import current_revision, upgrade
from billing.store.private_files import make_file_private, make_folder_private
from billing.transparency.notes import Signer, Verifier, signer, verifier
from models.catalog import Catalog
from serve.config.compression_models import CompressionModelSettings
from serve.config.paths import ConfigError
from serve.config.retrieval_models import RetrievalModelSettings
from serve.config.server_settings import DemoSettings
from serve.config.settings import Settings

PEPPER = "pepper"
PEPPER_BYTES = 32


def read_pepper(state_dir: Path) -> bytes:
    """The secret in `STATE_DIR/pepper` (mode 0600), made on first use; two first uses at once agree on one."""
    path = state_dir / PEPPER
    if not path.exists():
        make_once(path, secrets.token_bytes(PEPPER_BYTES))
    make_file_private(path)
    pepper = path.read_bytes()
    if len(pepper) != PEPPER_BYTES:
        raise ValueError(f"{path}: holds {len(pepper)} bytes, not {PEPPER_BYTES}; restore it from a backup")
    return pepper


def digest_of_pepper(state_dir: Path) -> str | None:
    """By which machines compare theirs; None where there is none."""
    path = state_dir / PEPPER
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def require_pepper(state_dir: Path, digest: str) -> None:
    """Raises `ValueError` on a machine of a cluster that has another secret, or none: it would know no key. None is
    made there."""
    found = digest_of_pepper(state_dir)
    if found != digest:
        missing = "is not there" if found is None else "is another one"
        raise ValueError(
            f"{state_dir / PEPPER} {missing}: copy that of the machine that started pith to this node (mode 0600)"
        )


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
        prices = prices_of(catalog, settings.compression.models, settings.retrieval_models)
        await Ledger(database, Spool(settings.billing.spool_path)).publish_prices(prices, now=now)
        if not settings.demo.enabled:
            return None
        accounts = Accounts(database, pepper=pepper_of(settings))
        return await demo_key(accounts, settings.demo, now=now)
    finally:
        await database.close()


async def open_accounts(
    settings: Settings, *, makes_ledger: bool = True, makes_pepper: bool = True
) -> tuple[Database, Accounts]:
    """The accounts for a command; close the database after use.

    Raises `ConfigError` where there is no ledger, unless the command may make one. Only making a key and checking one
    need the pepper: other commands leave none behind.
    """
    if makes_ledger:
        make_folders(settings)
    else:
        await require_ledger(settings)
    is_kept = (settings.state_dir / PEPPER).exists()
    pepper = pepper_of(settings) if makes_pepper or is_kept else secrets.token_bytes(PEPPER_BYTES)
    await upgrade(settings.billing.database_url)
    database = open_database(settings.billing.database_url)
    return database, Accounts(database, pepper=pepper, actor=operator())


async def open_books(settings: Settings) -> Database:
    """The ledger for a command that reads all of it, which may take minutes; close it after use.

    Raises `ConfigError` where there is none: made here it would be empty, and an empty answer a wrong one.
    """
    await require_ledger(settings)
    await upgrade(settings.billing.database_url)
    return open_database(settings.billing.database_url, timeout_s=REPORT_TIMEOUT_S)


async def require_ledger(settings: Settings) -> None:
    """Raises `ConfigError` where no ledger was made yet."""
    require_ledger_file(settings)
    url = settings.billing.database_url
    if await current_revision(url) is None:
        where = sqlite_file(url) or parse_url(url).render_as_string()
        raise ConfigError(f"no ledger at {where}; start the server first")


def require_ledger_file(settings: Settings) -> None:
    """Raises `ConfigError` where SQLite's file is not there: connecting would make an empty one."""
    file = sqlite_file(settings.billing.database_url)
    if file is not None and not file.is_file():
        raise ConfigError(f"no ledger at {file}; start the server first")


def sqlite_file(url: str) -> Path | None:
    scheme, _, path = url.partition(":///")
    return Path(path) if scheme == "sqlite" else None


def operator() -> str:
    """The user who runs this command, for the audit log."""
    try:
        return f"cli:{pwd.getpwuid(os.getuid()).pw_name}"
    except KeyError:
        return f"cli:{os.getuid()}"


def make_folders(settings: Settings) -> None:
    """Raises `ConfigError` for a folder that cannot be made."""
    folders = [settings.state_dir, settings.billing.spool_path.parent]
    file = sqlite_file(settings.billing.database_url)
    if file is not None:
        folders.append(file.parent)
    for folder in folders:
        try:
            make_folder(folder)
        except OSError as error:
            raise ConfigError(f"cannot make the folder {folder}: {error.strerror}") from error
    make_folder_private(settings.state_dir)


def pepper_of(settings: Settings) -> bytes:
    """Raises `ConfigError` for an invalid pepper."""
    try:
        return read_pepper(settings.state_dir)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def log_signer(settings: Settings) -> Signer:
    """Of the transparency log and of promises. Raises `ConfigError` for an invalid pepper."""
    return signer(pepper_of(settings), settings.log.origin)


def witness_key(settings: Settings) -> Verifier | None:
    """Of who cosigns the log's checkpoints, if anybody does."""
    return None if settings.log.witness is None else verifier(settings.log.witness.key)


def prices_of(
    catalog: Catalog,
    compressors: Sequence[CompressionModelSettings],
    retrieval: Sequence[RetrievalModelSettings] = (),
) -> list[ModelPrice]:
    """The prices of the catalog, of the compression models and of the others, in billing's terms."""
    chat = [
        ModelPrice(
            model_id=model.id,
            input_micro_usd_per_mtok=model.input_micro_usd_per_mtok,
            output_micro_usd_per_mtok=model.output_micro_usd_per_mtok,
            minimum_nano_usd=model.minimum_nano_usd,
            cached_input_micro_usd_per_mtok=model.cached_input_micro_usd_per_mtok,
        )
        for model in catalog.models
    ]
    return (
        chat
        + [
            ModelPrice(
                model_id=model.id,
                input_micro_usd_per_mtok=int(model.price_usd_per_mtok_input * 10**6),
                output_micro_usd_per_mtok=0,
                minimum_nano_usd=0,
            )
            for model in compressors
        ]
        + [
            ModelPrice(
                model_id=model.id,
                input_micro_usd_per_mtok=int(model.price.input_usd_per_mtok * 10**6),
                output_micro_usd_per_mtok=0,
                minimum_nano_usd=int(model.price.minimum_request_usd * 10**9),
            )
            for model in retrieval
        ]
    )


async def demo_key(accounts: Accounts, demo: DemoSettings, *, now: datetime) -> str:
    """The key in the demo's file while it is valid, else a new one, written there for its owner alone. The demo's
    workspace gets its limit."""
    kept = _kept_key(demo.key_path)
    if kept is not None:
        try:
            await accounts.authenticate(kept, now=now)
            await _limit(accounts, demo)
            return kept
        except InvalidKey:
            pass
    # Apart, since a start may have died between them.
    with suppress(AccountExists):
        limit = demo.monthly_limit_nano_usd
        await accounts.create_workspace(DEMO, monthly_limit_nano_usd=limit, now=now)
    await _limit(accounts, demo)
    with suppress(AccountExists):
        await accounts.create_project(DEMO, DEMO, now=now)
    _, key = await accounts.keys.create(f"{DEMO}/{DEMO}", DEMO, now=now)
    _keep_key(demo.key_path, key)
    return key


async def _limit(accounts: Accounts, demo: DemoSettings) -> None:
    try:
        workspace = await accounts.find_workspace(DEMO)
    except UnknownAccount:
        # The operator has put another workspace's key into the file.
        return
    limit = demo.monthly_limit_nano_usd
    if workspace.monthly_limit_nano_usd != limit:
        await accounts.change_workspace(DEMO, {"monthly_limit_nano_usd": limit})


def _kept_key(path: Path) -> str | None:
    make_file_private(path)
    try:
        return path.read_text(encoding="ascii").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return None


def _keep_key(path: Path, key: str) -> None:
    path.unlink(missing_ok=True)
    make_once(path, f"{key}\n".encode("ascii"))


async def put_in_force(
    settings: Settings,
    prices: Sequence[ModelPrice],
    *,
    actor: str,
    action: str,
    details: Mapping[str, Any],
    now: datetime,
) -> int:
    """Publish the prices, with a line in the audit log, and make the demo key where there is to be one. Returns the
    version of the price list. The ledger is not migrated. Raises `LedgerUnavailable` or `ConfigError`."""
    database = open_database(settings.billing.database_url)
    try:
        version = await change_prices(
            database,
            prices,
            actor=actor,
            action=action,
            subject=f"server:{settings.server.port}",
            details=details,
            now=now,
        )
        if settings.demo.enabled:
            accounts = Accounts(database, pepper=pepper_of(settings), actor=actor)
            await demo_key(accounts, settings.demo, now=now)
        return version
    finally:
        await database.close()
