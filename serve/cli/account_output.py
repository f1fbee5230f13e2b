"""Workspaces, projects and keys as the commands print them: one of them, or a list without what was revoked."""

import json
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import typer

from billing.accounts.account_sql import KeyRecord, Project, Workspace
from serve.cli import table

ACTIVE = "active"
NANO = 10**9


def show(found: Workspace | Project | KeyRecord, as_json: bool) -> None:
    """Print one record, as JSON or as a table."""
    row = fields_of(found)
    typer.echo(json.dumps(row) if as_json else table.as_table(list(row), [row]))


def show_lines(
    lines: Sequence[dict[str, Any]], with_revoked: bool, as_json: bool, *, first: Sequence[str] = ()
) -> None:
    """Print a list, as JSON or as a table whose columns begin with `first`. Revoked rows are left out unless
    `with_revoked`; their number is printed after the table."""
    shown = [line for line in lines if with_revoked or line["state"] == ACTIVE]
    if as_json:
        typer.echo(table.as_json(shown))
        return
    columns = [*first, *(name for name in (shown or [{}])[0] if name not in first)]
    typer.echo(table.as_table(columns, shown) if shown else "none")
    if len(shown) < len(lines):
        typer.echo(f"{len(lines) - len(shown)} revoked, left out; --all shows them", err=True)


def state_of(revoked: str | None) -> dict[str, str]:
    return {"state": ACTIVE if revoked is None else f"{revoked} revoked"}


def fields_of(record: Any) -> dict[str, Any]:
    assert is_dataclass(record) and not isinstance(record, type)
    flat: dict[str, Any] = {}
    for name, value in asdict(record).items():
        if isinstance(value, dict):
            flat |= value
        elif name.endswith("_nano_usd"):
            flat[name.removesuffix("_nano_usd") + "_usd"] = (
                None if value is None else str(Decimal(value) / NANO)
            )
        elif isinstance(value, datetime):
            flat[name] = value.isoformat(timespec="seconds")
        else:
            flat[name] = value
    return flat
