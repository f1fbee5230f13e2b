"""Runs a command's work on the ledger that a configuration file names, and closes it afterwards."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

if TYPE_CHECKING:
    from billing.store.database import Database
    from serve.config.settings import Settings
    from serve.operator.operator import Operator

T = TypeVar("T")


def on_accounts(
    config: Path,
    work: Callable[[Operator], Awaitable[T]],
    *,
    makes_ledger: bool = False,
    makes_pepper: bool = False,
) -> T:
    """Run `work` on the ledger's accounts. Raises `ConfigError` if there is no ledger and it may not be made."""
    from serve.config.settings import load_anchored
    from serve.money.ledger_setup import open_accounts

    settings = load_anchored(config)

    async def run() -> T:
        database, _ = await open_accounts(settings, makes_ledger=makes_ledger, makes_pepper=makes_pepper)
        return await _done(settings, database, work)

    return asyncio.run(run())


def on_books(config: Path, work: Callable[[Operator], Awaitable[T]], *, makes_pepper: bool = False) -> T:
    """Run `work`, which may take minutes, on the ledger. Raises `ConfigError` if there is none."""
    from serve.config.settings import load_anchored
    from serve.money.ledger_setup import open_books, pepper_of

    settings = load_anchored(config)

    async def run() -> T:
        database = await open_books(settings)
        if makes_pepper:
            pepper_of(settings)
        return await _done(settings, database, work)

    return asyncio.run(run())


async def _done(settings: Settings, database: Database, work: Callable[[Operator], Awaitable[T]]) -> T:
    from billing.ledger.spool import Spool
    from billing.usage import now
    from serve.money.ledger_setup import operator
    from serve.operator.operator import Operator

    spool = Spool(settings.billing.spool_path)
    try:
        return await work(
            Operator(operator(), settings, database, database, spool, partial(_pepper, settings), now)
        )
    finally:
        await spool.close()
        await database.close()


def _pepper(settings: Settings) -> bytes:
    """The server's; where there is none, one that no command leaves behind."""
    from serve.money.ledger_setup import PEPPER, PEPPER_BYTES, pepper_of

    is_kept = (settings.state_dir / PEPPER).exists()
    return pepper_of(settings) if is_kept else secrets.token_bytes(PEPPER_BYTES)


async def tell_of_archive(operator: Operator, what: str, since: datetime | None = None) -> None:
    """On stderr: which months are not in the answer to `what`, from `since` on, and where they are."""
    months = await operator.archived_months()
    found = [one.month for one in months if since is None or one.last_settled_at >= since]
    if found:
        place = operator.settings.billing.archive.folder
        typer.echo(
            f"not among these: {what} of {', '.join(found)}, which are archived in {place} (pith archive --find)",
            err=True,
        )
