"""Files and folders that outlive a power cut: what was written is synced, and so is the folder that names it."""

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from billing.store.private_files import FILE_MODE

log = logging.getLogger(__name__)


def sync(path: Path) -> None:
    """What is in this file, or the names in this folder, outlive a power cut from now on. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path, *, mode: int = 0o777) -> None:
    """Makes it and those above it where they are missing; `mode` is for itself alone. Its own name is synced also where
    it is there already, since whoever made it need not have done so. Raises `OSError` if it cannot be made."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(mode=mode, parents=True, exist_ok=True)
    for one in missing or [folder]:
        try:
            sync(one.absolute().parent)
        except OSError as error:
            # One that may not be read, or a file system without this.
            log.warning("a power cut may take the folder %s: %s", one, error.strerror or error)


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A file for its owner alone, synced when the block ends; its name is not. Raises `FileExistsError`, `OSError`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def make_once(path: Path, content: bytes) -> None:
    """A file with this content for its owner alone, whole or not at all; one that is there stays. Of two processes that
    make it, one is first. Raises `OSError`."""
    make_folder(path.parent)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        with new_file(temporary) as file:
            file.write(content)
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)
