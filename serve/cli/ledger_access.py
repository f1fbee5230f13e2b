"""What the commands that read the ledger share: opening it, and the moments and options of their arguments."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from billing.store.database import Database
from serve.config.settings import ConfigError, Settings, load_anchored

T = TypeVar("T")

Since = Annotated[
    str | None, typer.Option(help="First day or moment, such as 2026-11-01 or 2026-11-01T09:30 (UTC).")
]
Until = Annotated[str | None, typer.Option(help="Day or moment (UTC) that is not included any more.")]


def on_books(config: Path, work: Callable[[Database, Settings], Awaitable[T]]) -> T:
    """Run `work` on the ledger that `config` names."""
    from serve.money.ledger_setup import open_books

    async def run() -> T:
        settings = load_anchored(config)
        database = await open_books(settings)
        try:
            return await work(database, settings)
        finally:
            await database.close()

    return asyncio.run(run())


def moment(text: str | None, option: str) -> datetime | None:
    """A moment from the command line, in UTC where it names no zone. Raises `ConfigError`."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"{option}: {text!r} is no day or moment such as 2026-11-01 or 2026-11-01T09:30"
        ) from error


def period(since: str | None, until: str | None) -> tuple[datetime | None, datetime | None]:
    """Both ends. Raises `ConfigError`, also for an end that is not after the beginning."""
    begin, end = moment(since, "--since"), moment(until, "--until")
    if begin is not None and end is not None and end <= begin:
        raise ConfigError(f"--until: {until!r} is not after --since {since!r}")
    return begin, end


def stamp(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds")
