"""Writes a file to disk while its row stands in the ledger; what is given up leaves neither."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import BinaryIO

from billing.batches.file_store import FileStore
from billing.batches.folder import FileFolder
from billing.batches.stored_file import FileBounds, StoredFile
from billing.errors import BillingError

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
    """A file of at most `new.size` bytes, in the store that this server reaches. Unless the block ends well, having
    finished it, nothing of it is left.

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
    """Deletes one that was not finished, as far as that can be done now; what is left expires."""
    try:
        await store.abandon(file_id)
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
