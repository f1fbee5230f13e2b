"""Installation of the embedded models: the committed pieces become complete checkpoint folders for an engine to load.

The tokenizer is committed once and copied into each folder. Every file is checked against `manifest.json`.
"""

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ARTEFACTS = Path(__file__).parent
MANIFEST = "manifest.json"
EMBEDDED_MODELS = ("pith-mini", "pith-small", "pith-base", "pith-wide")


class DamagedArtefact(Exception):
    """A committed file is missing or differs from the manifest: the checkout itself is at fault."""


def ensure_checkpoints(out_dir: Path, *, artefacts: Path = ARTEFACTS) -> dict[str, Path]:
    """Return the folder of each model under `out_dir`, made or repaired where it has to be.

    A folder appears whole or not at all, also when two processes call this at once. A folder in which
    anything was changed, added or lost is replaced. Raises `DamagedArtefact`, naming the file, when the
    committed pieces are not what the manifest says.
    """
    plans = read_manifest(artefacts)
    out_dir.mkdir(parents=True, exist_ok=True)
    with file_lock(out_dir):
        for model_id, files in plans.items():
            if not is_intact(out_dir / model_id, files):
                _replace_folder(out_dir / model_id, files, artefacts)
    return {model_id: out_dir / model_id for model_id in plans}


def read_manifest(artefacts: Path = ARTEFACTS) -> dict[str, dict[str, str]]:
    """For each model the SHA-256 of each committed path that its folder is made of."""
    listed: dict[str, str] = json.loads((artefacts / MANIFEST).read_text(encoding="utf-8"))["sha256"]
    shared = {path: digest for path, digest in listed.items() if path.startswith("tokenizer/")}
    plans: dict[str, dict[str, str]] = {}
    for path, digest in listed.items():
        if path not in shared:
            plans.setdefault(Path(path).parts[1], dict(shared))[path] = digest
    return plans


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_intact(folder: Path, files: Mapping[str, str]) -> bool:
    """True for a folder that holds exactly these files: a stray safetensors file would be loaded as well."""
    wanted = {Path(path).name: digest for path, digest in files.items()}
    if not folder.is_dir() or {path.name for path in folder.iterdir()} != set(wanted):
        return False
    return all(sha256_of(folder / name) == digest for name, digest in wanted.items())


def _replace_folder(folder: Path, files: Mapping[str, str], artefacts: Path) -> None:
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        scratch.chmod(0o755)
        made = scratch / "new"
        made.mkdir()
        for path, digest in files.items():
            _copy_checked(artefacts / path, made / Path(path).name, digest)
        if folder.exists():
            folder.rename(scratch / "old")
        made.rename(folder)
    finally:
        shutil.rmtree(scratch)


def _copy_checked(source: Path, target: Path, digest: str) -> None:
    if not source.is_file():
        raise DamagedArtefact(f"embedded checkpoint: {source} is missing; restore it from the repository")
    shutil.copyfile(source, target)
    if sha256_of(target) != digest:
        raise DamagedArtefact(
            f"embedded checkpoint: {source} differs from {MANIFEST}; restore it from the repository"
        )


@contextmanager
def file_lock(out_dir: Path, name: str = ".lock", waits: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Holds a file lock, which the system gives back even when the process is killed. `waits` is called where another
    process has it."""
    lock = os.open(out_dir / name, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waits()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
