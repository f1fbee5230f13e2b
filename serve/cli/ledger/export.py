"""`pith export`: usage events and adjustments, row by row, for another program."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal

import typer

from serve.cli.access import on_books, tell_of_archive
from serve.cli.options import Config, OfProject, OfWorkspace, Since, Until, period
from serve.config.paths import DEFAULT_CONFIG, ConfigError

if TYPE_CHECKING:
    from billing.export.exporter import Export, Exporter
    from billing.export.rows import Selection
    from serve.operator.operator import Operator

export_commands = typer.Typer(help="Rows of the ledger for other programs.", no_args_is_help=True)


@export_commands.command("events")
def export_events(
    format: Annotated[Literal["jsonl", "csv", "parquet"], typer.Option(help="What to write.")] = "jsonl",
    output: Annotated[
        Path | None, typer.Option(help="A file, which is there only once it is whole. Stdout, unless given.")
    ] = None,
    workspace: OfWorkspace = None,
    project: OfProject = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int | None, typer.Option(min=1, help="The most rows.")] = None,
    cursor: Annotated[
        str | None, typer.Option(help="Go on where an export ended, with what that was asked for.")
    ] = None,
    config: Config = DEFAULT_CONFIG,
) -> None:
    """Write usage events and adjustments, one row each. On stderr: how many, until when, and a cursor for the rest."""
    if cursor is not None and any(one is not None for one in (workspace, project, since, until)):
        raise ConfigError(
            "--cursor: has the workspace, the project and the period in it; give none of them with it"
        )
    if format == "parquet" and output is None and sys.stdout.isatty():
        raise ConfigError("--output: Parquet is no text for a terminal; name a file")
    begin, end = period(since, until)

    async def run(operator: Operator) -> None:
        from billing.export.exporter import Exporter
        from billing.export.rows import selection_of

        exporter = Exporter(operator.patient)
        asked = (
            selection_of(cursor)
            if cursor is not None
            else await exporter.selection(workspace=workspace, project=project, since=begin, until=end)
        )
        await _write(exporter, asked, format, output, limit)
        await tell_of_archive(operator, "usage events", asked.since)

    on_books(config, run)


async def _write(
    exporter: Exporter,
    asked: Selection,
    format: Literal["jsonl", "csv", "parquet"],
    output: Path | None,
    limit: int | None,
) -> None:
    export = exporter.stream(format, asked, limit=limit)
    with whole_file(output, "--output") if output is not None else _stdout() as file:
        try:
            async for piece in export:
                file.write(piece)
            file.flush()
        except BaseException:
            # What reached a pipe is there; nothing of a file is.
            if output is None and format != "parquet":
                _say(export)
            raise
    _say(export)


def _say(export: Export) -> None:
    typer.echo(f"{export.rows} rows, until {export.until.isoformat()} (not included)", err=True)
    if export.left is not None:
        typer.echo(f"there is more: --cursor {export.left.cursor}", err=True)


@contextmanager
def _stdout() -> Iterator[BinaryIO]:
    yield sys.stdout.buffer


@contextmanager
def whole_file(path: Path, option: str) -> Iterator[BinaryIO]:
    """A file that takes its name once all of it is on disk. Only its owner may read it. Raises `ConfigError`."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigError(f"{option}: cannot write {path}: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        raise ConfigError(f"{option}: cannot write {path}: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)
