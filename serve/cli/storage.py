"""`pith backup`, `pith restore` and `pith archive`: copies of what a server keeps, and old months in files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from serve.cli.access import on_books
from serve.cli.options import Config
from serve.config.paths import DEFAULT_CONFIG, ConfigError

if TYPE_CHECKING:
    from serve.operator.operator import Operator

Folder = Annotated[Path, typer.Argument(help="Folder of the backup.")]


def backup(folder: Folder, config: Config = DEFAULT_CONFIG) -> None:
    """Copy ledger, spool, secrets, files of batches and configuration into a new folder, while the server runs."""
    from billing.usage import now
    from serve.cli.main import version_line
    from serve.config.settings import load_anchored
    from serve.money.ledger_setup import require_ledger_file
    from serve.operator.backup import BackupRefused, back_up, vital_files_of

    settings = load_anchored(config)
    require_ledger_file(settings)
    places = vital_files_of(settings)
    try:
        made = back_up(places, config, folder, version=version_line(), now=now())
    except OSError as error:
        raise BackupRefused(f"{error.filename or folder}: {error.strerror or error}") from error
    typer.echo(f"{folder}: {len(made.digests)} files, as of {made.created_at}")
    archive = settings.billing.archive.folder
    if archive.is_dir():
        typer.echo(
            f"The archive of old months is not in it: copy {archive} too, which never changes.", err=True
        )
    if places.ledger_is_elsewhere:
        typer.echo(
            "The ledger is not in it: run pg_dump now, after this (docs/operations/backup.md).", err=True
        )


def restore(folder: Folder, config: Config = DEFAULT_CONFIG) -> None:
    """Put a backup where a configuration expects its parts; nothing is overwritten."""
    from serve.config.settings import load_anchored
    from serve.operator.backup import BackupRefused, vital_files_of
    from serve.operator.backup import restore as put_in_place

    try:
        found = put_in_place(folder, vital_files_of(load_anchored(config)))
    except OSError as error:
        raise BackupRefused(f"{error.filename or folder}: {error.strerror or error}") from error
    typer.echo(f"restored {len(found.digests)} files, as of {found.created_at}; now run pith reconcile")


DELETED, BETWEEN_S = "events deleted", 60


def archive(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be archived, and change nothing.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Compare the files of the archive with what was proven.")
    ] = False,
    find: Annotated[
        str | None, typer.Option(help="Print an archived usage event, by its id, as JSON.")
    ] = None,
    admit: Annotated[
        str | None,
        typer.Option(
            help="Let the ledger take a usage event, by its id, that came after its month was archived and that the "
            "archive does not have. Then: pith spool retry."
        ),
    ] = None,
    config: Config = DEFAULT_CONFIG,
) -> None:
    """Move the usage events of months that are over to files, as billing.archive says. Goes on where it was stopped."""
    if sum((dry_run, check, find is not None, admit is not None)) > 1:
        raise ConfigError("--dry-run, --check, --find and --admit: give one of them")
    if check:
        return on_books(config, _check)
    if find is not None:
        return on_books(config, lambda operator: _find(operator, find))
    if admit is not None:
        return on_books(config, lambda operator: _admit(operator, admit))
    return on_books(config, lambda operator: _archive(operator, dry_run=dry_run))


async def _archive(operator: Operator, *, dry_run: bool) -> None:
    from billing.archive.archiver import Archiver, planned

    keep, folder = _policy(operator)
    if keep is None:
        raise ConfigError("billing.archive.keep_months: not set, so nothing is archived")
    if dry_run:
        for one in await planned(operator.database, keep):
            begun = "" if one.state is None else f", {one.state}: a run before this did not end"
            typer.echo(f"{one.month}: events in the ledger: {one.events}{begun}")
        return
    archiver = Archiver(operator.database, operator.spool, folder, actor=operator.actor, tell=Steps())
    months = await archiver.archive(keep)
    typer.echo(f"archived in {folder}: {', '.join(months) or 'nothing: no month is due'}")


async def _check(operator: Operator) -> None:
    from billing.archive.archiver import check_all

    _, folder = _policy(operator)
    typer.echo(f"{folder}: {await check_all(operator.database, folder)} files, as they were proven")


async def _find(operator: Operator, event_id: str) -> None:
    from billing.archive.archiver import find
    from billing.errors import ArchiveRefused

    found = await find(operator.database, _policy(operator)[1], event_id)
    if found is None:
        raise ArchiveRefused(f"no file of its month has event {event_id[:80]!r}")
    _say(str(found.path))
    typer.echo(json.dumps(found.event, default=str))


async def _admit(operator: Operator, event_id: str) -> None:
    from billing.archive.archiver import admit

    await admit(operator.database, _policy(operator)[1], event_id, actor=operator.actor)
    typer.echo(
        f"the archive does not have {event_id}: the ledger takes it; now run pith spool retry {event_id}"
    )


def _policy(operator: Operator) -> tuple[int | None, Path]:
    """The number of months that stay, and the folder of the others."""
    archive = operator.settings.billing.archive
    return archive.keep_months, archive.folder


class Steps:
    """Says each step, and of the many in which events are deleted one a minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said_at = clock()

    def __call__(self, step: str) -> None:
        if step.endswith(DELETED):
            if self._clock() - self._said_at < BETWEEN_S:
                return
            self._said_at = self._clock()
        _say(step)


def _say(step: str) -> None:
    typer.echo(step, err=True)
