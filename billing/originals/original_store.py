"""Retained originals in the ledger's database, in short writes that the money of requests never waits for."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import count as count_up
from typing import TypeVar

from sqlalchemy import ColumnElement, Connection

from billing.accounts import account_sql, audit_log
from billing.accounts.audit_log import AuditEntry
from billing.originals import original_sql
from billing.originals.original_sql import Begun, Chunk, Head, Retained
from billing.store.database import Database, PatientWork, Work

T = TypeVar("T")

# A writer is given up long before; what it left behind has expired then.
GRACE_S = 60.0
# Between two steps of a deletion, so that it is no load.
PAUSE_S = 0.01
# The rest of a long queue is deleted in the next round.
STEPS_PER_ROUND = 2000
# Called with how many originals were deleted, and why.
Count = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class Step:
    """The result of the first write of an original; `until` if it was also the last."""

    begun: Begun
    until: float | None = None


class OriginalStore:
    """Every method raises `LedgerUnavailable`. Times are seconds since 1970, by the database's clock."""

    def __init__(self, database: Database, *, grace_s: float = GRACE_S) -> None:
        self._database = database
        self._grace_s = grace_s

    async def extend(self, project_id: str, ids: Sequence[str], retain_s: int) -> dict[str, float]:
        """Extends stored originals to at least `retain_s` from now. Returns when each of them expires."""
        return await self._write(
            lambda connection: original_sql.extend(connection, project_id, ids, retain_s)
        )

    async def begin(self, head: Head, chunks: Sequence[Chunk], *, retain_s: int, most_bytes: int) -> Step:
        """Writes the first chunks, and where these are all, makes it readable.

        Raises `OriginalsFull` where the project's originals would exceed `most_bytes` together.
        """

        def work(connection: Connection) -> Step:
            begun = original_sql.begin(connection, head, grace_s=self._grace_s, most_bytes=most_bytes)
            if begun != "begun":
                return Step(begun)
            original_sql.add(connection, head.generation, chunks)
            if len(chunks) < head.chunks:
                return Step(begun)
            return Step(begun, original_sql.finish(connection, head.generation, retain_s))

        return await self._write(work)

    async def add(self, head: Head, chunks: Sequence[Chunk]) -> None:
        """Writes more of one that was begun. Raises `RowRefused` where it was deleted meanwhile."""
        await self._write(lambda connection: original_sql.add(connection, head.generation, chunks))

    async def finish(self, head: Head, *, retain_s: int) -> float | None:
        """Makes it readable; until when. None where it took too long."""
        return await self._write(
            lambda connection: original_sql.finish(connection, head.generation, retain_s)
        )

    async def abandon(self, head: Head) -> None:
        """Gives up an unfinished original, so that no other writer waits `grace_s` for it."""
        await self._write(lambda connection: original_sql.abandon(connection, head.generation))

    async def find(self, project_id: str, id_: str) -> Head | None:
        """None for one that is not there or has expired."""
        return await self._database.read(partial(original_sql.find, project_id=project_id, id_=id_))

    async def chunks(self, head: Head, first: int, last: int) -> list[bytes]:
        """From `first` to `last`, both included; fewer where it has been deleted meanwhile."""
        return await self._database.read(
            partial(original_sql.chunks, generation=head.generation, first=first, last=last)
        )

    async def delete_rest(self, project_id: str, id_: str) -> None:
        """Deletes what is left of an original that has expired."""
        await self._delete(original_sql.named(project_id, id_), waits=True)

    async def delete_expired(self, count: Count) -> None:
        """Deletes what has expired, and all that revoked projects had."""
        await self._delete(original_sql.expired(), count=count, steps=STEPS_PER_ROUND)
        for project_id in await self._database.read(original_sql.revoked_projects):
            whose = original_sql.of_project(project_id)
            await self._delete(whose, count=count, reason="revoked", steps=STEPS_PER_ROUND)

    async def forget(self, project: str, *, actor: str, now: datetime) -> Retained:
        """Deletes all that a project has, and says what it was. Raises `UnknownAccount`.

        The audit log says so before anything is deleted.
        """

        def note(connection: Connection) -> tuple[str, Retained]:
            found = account_sql.find_project(connection, project)
            had = original_sql.retained(connection, found.id)
            details = {"originals": had.originals, "bytes": had.bytes}
            entry = AuditEntry(now, actor, "project.forget", found.workspace_id, found.id, details)
            audit_log.record(connection, entry)
            return found.id, had

        project_id, had = await self._database.write(note)
        await self._delete(original_sql.of_project(project_id), waits=True)
        return had

    async def _delete(
        self,
        which: ColumnElement[bool],
        *,
        waits: bool = False,
        count: Count = lambda reason, number: None,
        reason: str = "expired",
        steps: int | None = None,
    ) -> None:
        for _ in count_up() if steps is None else range(steps):
            step = await self._write(partial(original_sql.delete_some, which=which, waits=waits))
            count(reason, step.complete)
            count("unfinished", step.unfinished)
            if step.is_all:
                return
            await asyncio.sleep(PAUSE_S)

    async def _write(self, work: Work[T]) -> T:
        # Originals are temporary, so a power cut may lose the last ones; the log stays consistent without a sync.
        return await self._database.write(PatientWork(work), durable=False)
