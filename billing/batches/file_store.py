"""Files of projects: their contents in a private folder, their rows in the ledger, and the writing of both."""

import asyncio
import errno
import os
import secrets
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from billing.batches import file_sql
from billing.batches.batch import FileBounds, FilePage, StorageFull, StorageUnavailable, StoredFile
from billing.errors import BillingError
from billing.store.database import Database, PatientWork, Work
from billing.store.durable_files import make_folder, make_once, sync
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
        make_folder(path.parent, mode=FOLDER_MODE)
        make_once(path, secrets.token_hex(ID_CHARS // 2).encode() + b"\n")
        return _read(path)


def _read(path: Path) -> str:
    found = path.read_bytes()[: ID_CHARS + 2].decode("ascii", "replace").strip()
    if len(found) != ID_CHARS or not set(found) <= set("0123456789abcdef"):
        raise StorageUnavailable(f"{path.name} holds no id: it should be {ID_CHARS} digits, from 0 to f")
    return found


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
        """True where the file is in this folder."""
        with _translated_errors():
            return self._of(file_id).exists()

    def create(self, file_id: str) -> BinaryIO:
        """A new empty file, for its owner alone."""
        with _translated_errors():
            if not self._path.is_dir():
                make_folder(self._path, mode=FOLDER_MODE)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            return open(os.open(self._of(file_id), flags, FILE_MODE), "wb", buffering=0)

    def write(self, file: BinaryIO, data: bytes) -> None:
        """All of `data`."""
        rest = memoryview(data)
        with _translated_errors():
            while rest:
                rest = rest[os.write(file.fileno(), rest) :]

    def close(self, file: BinaryIO) -> None:
        """Closes the file, whose content outlives a power cut from now on."""
        with _translated_errors():
            try:
                os.fsync(file.fileno())
            finally:
                file.close()
            sync(self._path)

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


@contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        if error.errno in _FULL:
            raise StorageFull(reason) from error
        raise StorageUnavailable(reason) from error


T = TypeVar("T")

# A file that nobody has written to for so long was left behind by a process that died.
GRACE_S = 600.0
EXPIRED_AT_ONCE = 100
UNPLACED_AT_ONCE = 500


class FileStore:
    """Every method raises `LedgerUnavailable`."""

    def __init__(self, database: Database, *, grace_s: float = GRACE_S) -> None:
        self._database = database
        self.grace_s = grace_s

    async def begin(self, file: StoredFile, bounds: FileBounds | None) -> None:
        """Sets `file.size` bytes aside; call it before the file is made on disk. Raises `FilesFull`."""
        await self._write(partial(file_sql.begin, file=file, grace_s=self.grace_s, bounds=bounds))

    async def keep_alive(self, file_id: str) -> None:
        """To be called well within `grace_s` while the file is written. Raises `LostClaim`."""
        await self._write(partial(file_sql.keep_alive, file_id=file_id, grace_s=self.grace_s))

    async def finish(
        self, file_id: str, *, size: int, lifetime_s: float, filename: str | None = None
    ) -> StoredFile:
        """The file is on disk, whole: from now on it is there. Raises `LostClaim`."""
        work = partial(file_sql.finish, file_id=file_id, size=size, lifetime_s=lifetime_s, filename=filename)
        return await self._write(work)

    async def find(self, project_id: str, file_id: str) -> StoredFile:
        """Raises `UnknownFile`."""
        return await self._database.read(partial(file_sql.find, project_id=project_id, file_id=file_id))

    async def listed(self, project_id: str, page: FilePage) -> list[StoredFile]:
        """One more than `page.limit` where there are more. Raises `UnknownFile` of `page.after`."""
        return await self._database.read(partial(file_sql.listed, project_id=project_id, page=page))

    async def forget(self, project_id: str, file_id: str) -> StoredFile:
        """Nobody finds it from now on; unlink it, then `delete_row`. Raises `UnknownFile` or `FileInUse`."""
        return await self._write(partial(file_sql.forget, project_id=project_id, file_id=file_id))

    async def abandon(self, file_id: str) -> bool:
        """As `forget`, of one that is not finished; False where it is."""
        return await self._write(partial(file_sql.abandon, file_id=file_id))

    async def expired(self, store: str) -> list[str]:
        """Some of this store that are over and that no batch reads; unlink each, then `delete_row`."""
        return await self._write(partial(file_sql.expired, store=store, limit=EXPIRED_AT_ONCE))

    async def uncount_lost(self) -> int:
        """Some that are over in stores that no server reaches any more take no room now; how many."""
        return await self._write(partial(file_sql.uncount_lost, limit=EXPIRED_AT_ONCE))

    async def unplaced(self, after: str) -> list[str]:
        """Some files from before there were stores, those whose ids come next."""
        return await self._database.read(partial(file_sql.unplaced, after=after, limit=UNPLACED_AT_ONCE))

    async def place(self, store: str, file_ids: Collection[str]) -> None:
        """The store has their content, unless another one had it first."""
        await self._write(partial(file_sql.place, store=store, file_ids=file_ids))

    async def delete_row(self, file_id: str) -> None:
        """Call it when the file is gone from the disk."""
        await self._write(partial(file_sql.delete_row, file_id=file_id))

    async def _write(self, work: Work[T]) -> T:
        return await self._database.write(PatientWork(work))


# Written at once; more of a slow disk's work is not kept in memory.
PIECE_BYTES = 2**18


class FileWriter:
    """One file that is being written. `size` is what it was given so far, in bytes."""

    def __init__(self, store: FileStore, folder: FileFolder, file_id: str, file: BinaryIO) -> None:
        self._store = store
        self._folder = folder
        self._file = file
        self._pending = bytearray()
        self._kept_at = _now()
        self.file_id = file_id
        self.size = 0

    async def write(self, data: bytes) -> None:
        """Raises `StorageFull`, `StorageUnavailable`, and what `FileStore.keep_alive` raises."""
        self._pending += data
        self.size += len(data)
        if len(self._pending) >= PIECE_BYTES:
            await self._flush()

    async def close(self) -> None:
        """All of it is on the disk: now it may be finished in the ledger. Raises what `write` raises."""
        await self._flush()
        await asyncio.to_thread(self._folder.close, self._file)

    async def _flush(self) -> None:
        data, self._pending = bytes(self._pending), bytearray()
        await asyncio.to_thread(self._folder.write, self._file, data)
        if _now() - self._kept_at > self._store.grace_s / 10:
            await self._store.keep_alive(self.file_id)
            self._kept_at = _now()


@asynccontextmanager
async def written_file(
    store: FileStore, folder: FileFolder, new: StoredFile, bounds: FileBounds | None
) -> AsyncIterator[FileWriter]:
    """A file of at most `new.size` bytes, in the store that this server reaches. Where the block does not end well
    nothing of it is left, unless the ledger has it as finished.

    Raises `FilesFull`, `LedgerUnavailable`, and what `FileWriter` raises.
    """
    new = replace(new, store=await asyncio.to_thread(folder.store))
    await store.begin(new, bounds)
    file: BinaryIO | None = None
    try:
        file = await asyncio.to_thread(folder.create, new.id)
        yield FileWriter(store, folder, new.id, file)
    except BaseException:
        # Shielded: the second cancellation of a server that stops must not leave it behind until it expires.
        await asyncio.shield(asyncio.create_task(discard(store, folder, new.id)))
        raise
    finally:
        if file is not None:
            file.close()


async def discard(store: FileStore, folder: FileFolder, file_id: str) -> None:
    """Deletes one that was not finished, as far as that can be done now; what is left expires. One that the ledger has
    as finished is kept, whatever it answered: nothing else has what is in a batch's output."""
    try:
        if not await store.abandon(file_id):
            return
        await asyncio.to_thread(folder.delete, file_id)
        await store.delete_row(file_id)
    except BillingError:
        return


async def delete_expired(store: FileStore, folder: FileFolder) -> int:
    """Deletes all files of this server's store that are over; how many. Raises `LedgerUnavailable` or
    `StorageUnavailable`."""
    own, count = await asyncio.to_thread(folder.store), 0
    while found := await store.expired(own):
        for file_id in found:
            await asyncio.to_thread(folder.delete, file_id)
            await store.delete_row(file_id)
            count += 1
    while await store.uncount_lost():
        pass
    return count


async def take_in(store: FileStore, folder: FileFolder) -> int:
    """Files from before there were stores belong to the folder that has them: this one, if it does; how many. Raises
    `LedgerUnavailable` or `StorageUnavailable`."""
    own, after, count = await asyncio.to_thread(folder.store), "", 0
    while found := await store.unplaced(after):
        after = found[-1]
        there = await asyncio.to_thread(lambda ids: [id_ for id_ in ids if folder.has(id_)], found)
        if there:
            await store.place(own, there)
            count += len(there)
    return count


def _now() -> float:
    return asyncio.get_running_loop().time()
