"""Views as commands print them, one or a list, for people or as JSON; and text that a terminal must not obey."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import typer

from serve.operator.rows import Rows, as_json, as_table

ACTIVE = "active"


def printable(source: str) -> str:
    """The same length, without the control characters that a terminal would obey."""
    spaced = source.replace("\r", " ")
    return "".join(char if char in "\n\t" or char.isprintable() else "\N{MIDDLE DOT}" for char in spaced)


def show(row: dict[str, Any], in_json: bool) -> None:
    """Print one object, as JSON or as a table of one line."""
    typer.echo(json.dumps(row) if in_json else as_table(list(row), [row]))


def show_secret(secret: str, about: str, row: dict[str, Any], in_json: bool) -> None:
    """Print an object that was just made, with its secret, which is shown this once."""
    typer.echo(json.dumps(row) if in_json else f"{secret}\n{about}")


def show_rows(
    rows: Rows, in_json: bool, columns: Sequence[str] | None = None, *, numbers: Sequence[str] = ()
) -> None:
    """Print a list, as JSON or as a table of these columns; all, unless told otherwise."""
    if in_json:
        typer.echo(as_json(rows))
    else:
        typer.echo(as_table(columns or list(rows[0]), rows, numbers=numbers) if rows else "none")


def show_unrevoked(rows: Rows, with_revoked: bool, in_json: bool, *, first: Sequence[str] = ()) -> None:
    """Print a list, as JSON or as a table whose columns begin with `first`. Revoked rows are left out unless
    `with_revoked`; their number is printed after the table."""
    shown = [row for row in rows if with_revoked or row["state"] == ACTIVE]
    columns = [*first, *(name for name in (shown or [{}])[0] if name not in first)]
    show_rows(shown, in_json, columns)
    if len(shown) < len(rows) and not in_json:
        typer.echo(f"{len(rows) - len(shown)} revoked, left out; --all shows them", err=True)
