"""The contents of files, one on disk each, in a folder that nobody else may read."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from billing.batches.errors import StorageFull, StorageUnavailable
from billing.batches.kept_id import STORE, kept_id
from billing.store.private_files import FILE_MODE, FOLDER_MODE

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
