"""Backups: everything that a server must not lose is copied while it runs, and put in place elsewhere."""

import hashlib
import json
import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from billing.batches.file_store import DEPLOYMENT
from billing.store.durable_files import make_folder, sync
from billing.store.private_files import FILE_MODE, FOLDER_MODE, make_file_private, make_folder_private
from serve.config.paths import ConfigError
from serve.config.settings import Settings
from serve.money.ledger_setup import PEPPER, sqlite_file


class BackupRefused(ConfigError):
    """Something is in the way, or missing; nothing was overwritten."""


class BackupDamaged(ConfigError):
    """The folder is no backup, or not as it was written."""


LEDGER, SPOOL = "ledger.db", "spool.db"


@dataclass(frozen=True, slots=True)
class VitalFiles:
    """Each part by its name in a backup. `databases` are files of SQLite, in the order in which they are copied."""

    databases: dict[str, Path]
    secrets: dict[str, Path]
    # Contents of the files of batches.
    folder: Path
    ledger_is_elsewhere: bool


def vital_files_of(settings: Settings) -> VitalFiles:
    """The parts of a server with these settings, whether or not they exist."""
    ledger = sqlite_file(settings.billing.database_url)
    # The spool first: an event that moves to the ledger meanwhile is then in both, and is charged once. The other way
    # round it would be in neither.
    databases = {SPOOL: settings.billing.spool_path}
    if ledger is not None:
        databases[LEDGER] = ledger
    return VitalFiles(
        databases=databases,
        secrets={
            PEPPER: settings.state_dir / PEPPER,
            "admin-key": settings.ops.admin_key_file or settings.state_dir / "admin-key",
            "demo-key": settings.demo.key_path,
            DEPLOYMENT: settings.state_dir / DEPLOYMENT,
        },
        folder=settings.state_dir / "files",
        ledger_is_elsewhere=ledger is None,
    )


MANIFEST = "manifest.json"
FORMAT = 1
PIECE_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Manifest:
    """`digests` are the SHA-256 of each file, by its path in the backup."""

    created_at: str
    version: str
    ledger: str
    digests: dict[str, str]


def write_manifest(folder: Path, manifest: Manifest) -> None:
    document = {
        "format": FORMAT,
        "created_at": manifest.created_at,
        "pith": manifest.version,
        "ledger": manifest.ledger,
        "sha256": manifest.digests,
    }
    path = folder / MANIFEST
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    make_file_private(path)


def read_manifest(folder: Path) -> Manifest:
    """The list of the backup in `folder`, after it was compared with the files. Raises `BackupDamaged`."""
    document = _document(folder)
    try:
        found = Manifest(
            document["created_at"], document["pith"], document["ledger"], dict(document["sha256"])
        )
        if document["format"] != FORMAT:
            raise BackupDamaged(f"{folder}: format {document['format']} is not one that this version reads")
    except (KeyError, TypeError, ValueError) as error:
        raise BackupDamaged(f"{folder / MANIFEST}: not a list of a backup") from error
    changed = [name for name, digest in found.digests.items() if digest_of(folder / name) != digest]
    if changed:
        raise BackupDamaged(
            f"{folder}: missing or changed since the backup: {', '.join(sorted(changed)[:5])}"
        )
    return found


def digest_of(path: Path) -> str | None:
    """None where there is no such file."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                digest.update(piece)
    except OSError:
        return None
    return digest.hexdigest()


def _document(folder: Path) -> Any:
    try:
        document = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BackupDamaged(
            f"{folder}: no backup, or one that was not finished: {MANIFEST} cannot be read"
        ) from error
    return document if isinstance(document, dict) else {}


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
    sync(target.parent)
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
    """Write everything to the disk, so that it outlives a power cut."""
    for path in [*folder.rglob("*"), folder]:
        sync(path)


def restore(source: Path, places: VitalFiles) -> Manifest:
    """Copies what the backup holds. Raises `BackupDamaged`, `BackupRefused` where something is there already or the
    ledger is of another kind, and `OSError`; then nothing was written, unless the disk failed in between."""
    manifest = read_manifest(source)
    if places.ledger_is_elsewhere != (LEDGER not in manifest.digests):
        raise BackupRefused(
            f"{source}: its ledger is {manifest.ledger}, and billing.database_url names another kind of database"
        )
    found = {name: path for name, path in _parts(places).items() if name in manifest.digests}
    _refuse_to_overwrite(places)
    for name, path in found.items():
        make_folder(path.parent)
        copy = copy_database if name in places.databases else copy_file
        copy(source / name, path)
    copy_folder(source / FILES, places.folder)
    make_folder_private(places.secrets["pepper"].parent)
    for path in found.values():
        sync(path)
        sync(path.parent)
    if places.folder.is_dir():
        _sync(places.folder)
    return manifest


def _parts(places: VitalFiles) -> dict[str, Path]:
    return {**places.databases, **places.secrets}


def _refuse_to_overwrite(places: VitalFiles) -> None:
    there = [path for path in _parts(places).values() if path.exists()]
    # A write-ahead log beside no database would be taken for part of the restored one.
    there += [
        log
        for path in places.databases.values()
        for suffix in ("-wal", "-shm", "-journal")
        if (log := path.with_name(path.name + suffix)).exists()
    ]
    if places.folder.is_dir() and any(places.folder.iterdir()):
        there.append(places.folder)
    if there:
        raise BackupRefused(
            f"{there[0]} exists, and a restore overwrites nothing: move it away, and keep a spool, which may hold usage"
        )
