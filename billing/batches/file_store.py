"""The files of projects in the ledger's database, in short writes that the money of requests never waits for."""

from collections.abc import Collection
from functools import partial
from typing import TypeVar

from billing.batches import file_sql
from billing.batches.stored_file import FileBounds, FilePage, StoredFile
from billing.store.database import Database, PatientWork, Work

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

    async def abandon(self, file_id: str) -> None:
        """As `forget`, of one that is not finished."""
        await self._write(partial(file_sql.abandon, file_id=file_id))

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
