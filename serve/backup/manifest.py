"""The list of what a backup holds, by which a restore finds out that something is missing or was changed."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from billing.store.private_files import make_file_private
from serve.backup.errors import BackupDamaged

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
    """What the backup in `folder` holds, after it was compared with the files. Raises `BackupDamaged`."""
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
