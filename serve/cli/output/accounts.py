"""Workspaces, projects and keys as the commands print them: one of them, or a list without what was revoked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from serve.cli.output import table
from serve.reports.accounts import ACTIVE, fields_of, key_fields, with_objects

if TYPE_CHECKING:
    from billing.accounts.account_sql import Project, Workspace
    from billing.accounts.key_sql import KeyRecord


def show(found: Workspace | Project | KeyRecord, as_json: bool) -> None:
    """Print one record, as JSON or as a table."""
    from billing.accounts.key_sql import KeyRecord

    row = key_fields(found) if isinstance(found, KeyRecord) else fields_of(found)
    typer.echo(json.dumps(with_objects(row)) if as_json else table.as_table(list(row), [row]))


def show_lines(
    lines: Sequence[dict[str, Any]], with_revoked: bool, as_json: bool, *, first: Sequence[str] = ()
) -> None:
    """Print a list, as JSON or as a table whose columns begin with `first`. Revoked rows are left out unless
    `with_revoked`; their number is printed after the table."""
    shown = [line for line in lines if with_revoked or line["state"] == ACTIVE]
    if as_json:
        typer.echo(table.as_json([with_objects(line) for line in shown]))
        return
    columns = [*first, *(name for name in (shown or [{}])[0] if name not in first)]
    typer.echo(table.as_table(columns, shown) if shown else "none")
    if len(shown) < len(lines):
        typer.echo(f"{len(lines) - len(shown)} revoked, left out; --all shows them", err=True)
