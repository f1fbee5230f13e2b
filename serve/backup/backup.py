"""Makes a backup of a running server: each database by SQLite's own means, as it was at one moment; the rest copied."""

import os
import shutil
import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path

from billing.store.private_files import FILE_MODE, FOLDER_MODE
from serve.backup.errors import BackupRefused
from serve.backup.manifest import MANIFEST, Manifest, digest_of, write_manifest
from serve.backup.vital_files import VitalFiles

BUSY_S = 30.0
CONFIG = "config.yaml"
FILES = "files"


def back_up(places: VitalFiles, config: Path, target: Path, *, version: str, now: datetime) -> Manifest:
    """Writes the backup and returns its list. Until it is complete, the folder has another name.

    Raises `BackupRefused` where `target` exists, and `OSError`.
    """
    partial = target.with_name(f"{target.name}.partial")
    for folder in (target, partial):
        if folder.exists():
            raise BackupRefused(f"{folder} exists: a backup goes into a folder of its own")
    partial.mkdir(parents=True, mode=FOLDER_MODE)
    try:
        _copy_all(places, config, partial)
        manifest = Manifest(
            created_at=now.isoformat(timespec="seconds"),
            version=version,
            ledger="elsewhere" if places.ledger_is_elsewhere else "sqlite",
            digests=_digests(partial),
        )
        write_manifest(partial, manifest)
        _sync(partial)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    partial.rename(target)
    _sync_one(target.parent)
    return manifest


def copy_database(source: Path, target: Path) -> None:
    """A file of SQLite as it is at one moment, while others go on writing to it. Raises `BackupRefused`."""
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE))
    try:
        # In one go, so in one snapshot: with WAL nobody who writes waits for it.
        with (
            closing(
                sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True, timeout=BUSY_S)
            ) as reading,
            closing(sqlite3.connect(target)) as writing,
        ):
            reading.backup(writing)
            writing.execute("PRAGMA journal_mode=DELETE")
            (verdict,) = writing.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        raise BackupRefused(f"{source} cannot be copied: {error}") from error
    if verdict != "ok":
        raise BackupRefused(f"{source} is damaged: {verdict}")


def copy_file(source: Path, target: Path) -> None:
    """For its owner alone."""
    with source.open("rb") as reading:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        with os.fdopen(descriptor, "wb") as writing:
            shutil.copyfileobj(reading, writing)


def copy_folder(source: Path, target: Path) -> None:
    """Every file of it. One that its owner deletes meanwhile is left out."""
    for path in sorted(source.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
        try:
            copy_file(path, place)
        except FileNotFoundError:
            continue


def _copy_all(places: VitalFiles, config: Path, folder: Path) -> None:
    for name, path in places.databases.items():
        if path.exists():
            copy_database(path, folder / name)
    for name, path in places.secrets.items():
        if path.exists():
            copy_file(path, folder / name)
    copy_file(config, folder / CONFIG)
    copy_folder(places.folder, folder / FILES)


def _digests(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != MANIFEST]
    return {str(path.relative_to(folder)): digest_of(path) or "" for path in files}


def _sync(folder: Path) -> None:
    """What was written outlives a power cut."""
    for path in [*folder.rglob("*"), folder]:
        _sync_one(path)


def _sync_one(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
