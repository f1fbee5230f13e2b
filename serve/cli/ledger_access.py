"""Runs a command's work on the ledger that a configuration file names, and closes it afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

if TYPE_CHECKING:
    from billing.accounts.accounts import Accounts
    from billing.store.database import Database
    from serve.config.settings import Settings

T = TypeVar("T")


def on_accounts(
    config: Path,
    work: Callable[[Accounts], Awaitable[T]],
    *,
    makes_ledger: bool = False,
    makes_pepper: bool = False,
) -> T:
    """Run `work` on the ledger's accounts. Raises `ConfigError` if there is no ledger and it may not be made."""
    from serve.config.settings import load_anchored
    from serve.money.ledger_setup import open_accounts

    async def run() -> T:
        database, accounts = await open_accounts(
            load_anchored(config), makes_ledger=makes_ledger, makes_pepper=makes_pepper
        )
        try:
            return await work(accounts)
        finally:
            await database.close()

    return asyncio.run(run())


def on_books(config: Path, work: Callable[[Database, Settings], Awaitable[T]]) -> T:
    """Run `work` on the ledger's database. Raises `ConfigError` if there is no ledger."""
    from serve.config.settings import load_anchored
    from serve.money.ledger_setup import open_books

    async def run() -> T:
        settings = load_anchored(config)
        database = await open_books(settings)
        try:
            return await work(database, settings)
        finally:
            await database.close()

    return asyncio.run(run())


async def tell_of_archive(
    database: Database, settings: Settings, what: str, since: datetime | None = None
) -> None:
    """On stderr: which months are not in the answer to `what`, from `since` on, and where they are."""
    from billing.rollups.archived import archived

    months = await database.read(archived)
    found = [one.month for one in months if since is None or one.last_settled_at >= since]
    if found:
        place = settings.billing.archive.folder
        typer.echo(
            f"not among these: {what} of {', '.join(found)}, which are archived in {place} (pith archive --find)",
            err=True,
        )
