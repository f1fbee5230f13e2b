"""Options that several commands share."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from serve.config.settings import ConfigError

Config = Annotated[Path, typer.Option("--config", help="Configuration file that names the ledger.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
OfWorkspace = Annotated[str | None, typer.Option("--workspace", help="Only this workspace (id or name).")]
All = Annotated[bool, typer.Option("--all", help="Include what was revoked.")]


def require_one(options: Mapping[str, object]) -> None:
    """Raises `ConfigError` if none of these was given: a command that changes nothing must be a mistake."""
    if all(value is None for value in options.values()):
        raise ConfigError(f"nothing to change: give one or more of {', '.join(options)}")
