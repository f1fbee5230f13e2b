"""`pith backup` and `pith restore`: everything that a server must not lose, in one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from serve.cli.options import Config
from serve.config.paths import DEFAULT_CONFIG

Folder = Annotated[Path, typer.Argument(help="Folder of the backup.")]


def backup(folder: Folder, config: Config = DEFAULT_CONFIG) -> None:
    """Copy ledger, spool, secrets, files of batches and configuration into a new folder, while the server runs."""
    from billing.clock import now
    from serve.backup.backup import back_up
    from serve.backup.errors import BackupRefused
    from serve.backup.vital_files import vital_files_of
    from serve.cli.verbs.version import version_line
    from serve.config.settings import load_anchored
    from serve.money.ledger_setup import require_ledger_file

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
    from serve.backup.errors import BackupRefused
    from serve.backup.restore import restore as put_in_place
    from serve.backup.vital_files import vital_files_of
    from serve.config.settings import load_anchored

    try:
        found = put_in_place(folder, vital_files_of(load_anchored(config)))
    except OSError as error:
        raise BackupRefused(f"{error.filename or folder}: {error.strerror or error}") from error
    typer.echo(f"restored {len(found.digests)} files, as of {found.created_at}; now run pith reconcile")
