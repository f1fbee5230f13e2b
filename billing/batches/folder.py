"""The contents of files, one on disk each, in a folder that nobody else may read."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from billing.batches.batch import StorageFull, StorageUnavailable
from billing.store.private_files import FILE_MODE, FOLDER_MODE

# In the folder of files: the store as the ledger knows it. Servers that share the folder share it, and a backup has it.
STORE = ".store"
# In `state_dir`: the deployment of a server whose configuration names none.
DEPLOYMENT = "deployment"
ID_CHARS = 32


def kept_id(path: Path) -> str:
    """The id in this file, which is made where there is none. To be read each time: another folder may be mounted over
    it. Raises `StorageUnavailable` where the file holds something else, and `OSError`."""
    try:
        return _read(path)
    except FileNotFoundError:
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        _make(path)
        return _read(path)


def _read(path: Path) -> str:
    found = path.read_bytes()[: ID_CHARS + 2].decode("ascii", "replace").strip()
    if len(found) != ID_CHARS or not set(found) <= set("0123456789abcdef"):
        raise StorageUnavailable(f"{path.name} holds no id: it should be {ID_CHARS} digits, from 0 to f")
    return found


def _make(path: Path) -> None:
    """Whole or not at all: another process must not find it empty. Of two that make it, one is first."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_hex(ID_CHARS // 2).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class FileFolder:
    """Every method blocks, and raises `StorageFull` or `StorageUnavailable`. `file_id`: the ledger's."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def store(self) -> str:
        """The id of this file store."""
        with _translated_errors():
            return kept_id(self._path / STORE)

    def has(self, file_id: str) -> bool:
        """Whether the file is in this folder."""
        with _translated_errors():
            return self._of(file_id).exists()

    def create(self, file_id: str) -> BinaryIO:
        """A new empty file, for its owner alone."""
        with _translated_errors():
            self._path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            return open(os.open(self._of(file_id), flags, FILE_MODE), "wb", buffering=0)

    def write(self, file: BinaryIO, data: bytes) -> None:
        """All of `data`."""
        rest = memoryview(data)
        with _translated_errors():
            while rest:
                rest = rest[os.write(file.fileno(), rest) :]

    def close(self, file: BinaryIO) -> None:
        """What was written outlives a power cut from now on."""
        with _translated_errors():
            try:
                os.fsync(file.fileno())
            finally:
                file.close()
            self._sync()

    def open(self, file_id: str, *, buffered: bool = False) -> BinaryIO:
        """To read: in large pieces, or line by line from a buffer. One that is deleted meanwhile can be read to its
        end."""
        with _translated_errors():
            path = self._of(file_id)
            return path.open("rb") if buffered else cast(BinaryIO, path.open("rb", buffering=0))

    def delete(self, file_id: str) -> None:
        """Also one that is not there."""
        with _translated_errors():
            self._of(file_id).unlink(missing_ok=True)

    def _of(self, file_id: str) -> Path:
        if not file_id.replace("-", "").isalnum():
            raise ValueError(f"not the id of a file: {file_id!r}")
        return self._path / file_id

    def _sync(self) -> None:
        folder = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        if error.errno in _FULL:
            raise StorageFull(reason) from error
        raise StorageUnavailable(reason) from error
