"""Puts a backup where a configuration expects its parts. Nothing is ever overwritten."""

from pathlib import Path

from billing.store.private_files import make_folder_private
from serve.backup.backup import FILES, copy_database, copy_file, copy_folder
from serve.backup.errors import BackupRefused
from serve.backup.manifest import Manifest, read_manifest
from serve.backup.vital_files import LEDGER, VitalFiles


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
        path.parent.mkdir(parents=True, exist_ok=True)
        copy = copy_database if name in places.databases else copy_file
        copy(source / name, path)
    copy_folder(source / FILES, places.folder)
    make_folder_private(places.secrets["pepper"].parent)
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
