"""Rows as commands print them: a table for people, JSON, JSON lines or CSV for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from serve.reports.accounts import ACTIVE, fields_of, key_fields, with_objects
from serve.reports.csv_text import as_csv as as_csv
from serve.reports.csv_text import as_json_lines as as_json_lines

if TYPE_CHECKING:
    from billing.accounts.account_sql import Project, Workspace
    from billing.accounts.key_sql import KeyRecord

Rows = Sequence[Mapping[str, Any]]


def as_table(columns: Sequence[str], rows: Rows, *, numbers: Sequence[str] = ()) -> str:
    """Columns under their names, those in `numbers` aligned to the right."""
    widths = {name: max(len(name), *(len(_cell(row[name])) for row in rows), 0) for name in columns}

    def line(cells: Mapping[str, str]) -> str:
        padded = (
            cells[name].rjust(width) if name in numbers else cells[name].ljust(width)
            for name, width in widths.items()
        )
        return "  ".join(padded).rstrip()

    head = line({name: name for name in columns})
    return "\n".join([head, *(line({name: _cell(row[name]) for name in columns}) for row in rows)])


def as_json(rows: Rows) -> str:
    return json.dumps([dict(row) for row in rows])


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return str(value).lower() if isinstance(value, bool) else str(value)


def printable(source: str) -> str:
    """The same length, without the control characters that a terminal would obey."""
    spaced = source.replace("\r", " ")
    return "".join(char if char in "\n\t" or char.isprintable() else "\N{MIDDLE DOT}" for char in spaced)


def show(found: Workspace | Project | KeyRecord, as_json: bool) -> None:
    """Print one record, as JSON or as a table."""
    from billing.accounts.key_sql import KeyRecord

    row = key_fields(found) if isinstance(found, KeyRecord) else fields_of(found)
    typer.echo(json.dumps(with_objects(row)) if as_json else as_table(list(row), [row]))


def show_lines(
    lines: Sequence[dict[str, Any]], with_revoked: bool, as_json: bool, *, first: Sequence[str] = ()
) -> None:
    """Print a list, as JSON or as a table whose columns begin with `first`. Revoked rows are left out unless
    `with_revoked`; their number is printed after the table."""
    shown = [line for line in lines if with_revoked or line["state"] == ACTIVE]
    if as_json:
        typer.echo(json.dumps([with_objects(line) for line in shown]))
        return
    columns = [*first, *(name for name in (shown or [{}])[0] if name not in first)]
    typer.echo(as_table(columns, shown) if shown else "none")
    if len(shown) < len(lines):
        typer.echo(f"{len(lines) - len(shown)} revoked, left out; --all shows them", err=True)
