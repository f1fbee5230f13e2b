"""Options that several commands share, and how the values of some are read: days, moments, periods."""

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated

import typer

from billing.price import NANO_PER_USD
from serve.cli.completion import projects, workspaces
from serve.config.paths import ConfigError

Config = Annotated[Path, typer.Option("--config", help="Configuration file that names the ledger.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
OfWorkspace = Annotated[
    str | None,
    typer.Option("--workspace", help="Only this workspace (id or name).", autocompletion=workspaces),
]
OfProject = Annotated[
    str | None,
    typer.Option("--project", help="Only this project (WORKSPACE/NAME or id).", autocompletion=projects),
]
AWorkspace = Annotated[str, typer.Argument(help="Workspace (id or name).", autocompletion=workspaces)]
AProject = Annotated[str, typer.Argument(help="Project (WORKSPACE/NAME or id).", autocompletion=projects)]
All = Annotated[bool, typer.Option("--all", help="Include what was revoked.")]
Since = Annotated[
    str | None, typer.Option(help="First day or moment, such as 2026-11-01 or 2026-11-01T09:30 (UTC).")
]
Until = Annotated[str | None, typer.Option(help="First day or moment (UTC) to leave out.")]


def require_one(given: Mapping[str, object], *options: str) -> None:
    """Raises `ConfigError` if none of these was given: a command that changes nothing must be a mistake."""
    if not given:
        raise ConfigError(f"nothing to change: give one or more of {', '.join(options)}")


def period(since: str | None, until: str | None) -> tuple[datetime | None, datetime | None]:
    """Both ends. Raises `ConfigError`, also for an end that is not after the beginning."""
    begin, end = moment(since, "--since"), moment(until, "--until")
    if begin is not None and end is not None and end <= begin:
        raise ConfigError(f"--until: {until!r} is not after --since {since!r}")
    return begin, end


def moment(text: str | None, option: str) -> datetime | None:
    """A moment from the command line; UTC unless it names a zone. Raises `ConfigError`."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"{option}: {text!r} is not a day or a moment, such as 2026-11-01 or 2026-11-01T09:30"
        ) from error


def exact_nano_usd(text: str, most_usd: int | Decimal) -> int | None:
    """An amount of at most so many US dollars, above or below 0; None for text that is none, or has over 9 decimals."""
    try:
        usd = Decimal(text)
    except InvalidOperation:
        return None
    # The bound is checked before anything is computed: a million digits would take minutes.
    if not usd.is_finite() or not -most_usd <= usd <= most_usd:
        return None
    nano_usd = usd * NANO_PER_USD
    return int(nano_usd) if nano_usd == int(nano_usd) else None
