"""Batches in the ledger's database, in short writes that the money of requests never waits for."""

import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from sqlalchemy import Connection

from billing.batches import batch_sql, file_sql, line_sql
from billing.batches.batch import (
    Batch,
    BatchStatus,
    ClaimedLine,
    Counts,
    EndedLine,
    Home,
    LineState,
    LineTokens,
    NewBatch,
    NewLine,
)
from billing.batches.batch_sql import Job
from billing.store.database import Database, PatientWork, Work

T = TypeVar("T")
NO_TOKENS = LineTokens()
HomeOf = Callable[[], Awaitable[Home]]


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that a batch has written, whole and on disk: what it is, and how long it is kept."""

    file_id: str
    size: int
    lifetime_s: float


class BatchStore:
    """Every method raises `LedgerUnavailable`; those that make batches, or look for work, also what `home` raises. That
    says on which batches this server works.

    What a process works on, a line or a whole batch, is its own for `lease_s` seconds after it last said so. Another
    process takes over what it left behind.
    """

    def __init__(self, database: Database, *, lease_s: float, home: HomeOf) -> None:
        self._database = database
        self._home = home
        self.lease_s = lease_s

    async def make(self, new: NewBatch, *, most_unfinished: int = 100) -> Batch:
        """Raises `UnknownFile` or `StoredElsewhere` of its input, or `TooManyBatches`."""
        home = await self._home()
        return await self._write(partial(batch_sql.make, new=new, home=home, most_unfinished=most_unfinished))

    async def find(self, project_id: str, batch_id: str) -> Batch:
        """Raises `UnknownBatch`."""
        return await self._database.read(partial(batch_sql.find, project_id=project_id, batch_id=batch_id))

    async def listed(self, project_id: str, *, limit: int, after: str | None) -> list[Batch]:
        """The newest first; one more than `limit` where there are more. Raises `UnknownBatch` of `after`."""
        read = partial(batch_sql.listed, project_id=project_id, limit=limit, after=after)
        return await self._database.read(read)

    async def cancel(self, project_id: str, batch_id: str) -> Batch:
        """Raises `UnknownBatch` or `BatchEnded`."""
        return await self._write(partial(batch_sql.cancel, project_id=project_id, batch_id=batch_id))

    async def any_unfinished(self) -> bool:
        """True while there is anything left to do, for any batch."""
        return await self._database.read(batch_sql.any_unfinished)

    async def advance(self) -> None:
        """Ends what is over, of any home: batches whose time has passed, and those of which no line is left to run."""
        home = await self._home()

        def work(connection: Connection) -> None:
            batch_sql.adopt(connection, home)
            batch_sql.expire(connection)
            batch_sql.close_running(connection)

        await self._write(work)

    async def running(self) -> list[tuple[str, str]]:
        """The batches whose lines are run, the oldest first, each with its project."""
        return await self._database.read(partial(batch_sql.running, home=await self._home()))

    async def take_job(self, statuses: Collection[BatchStatus], *, after_project: str = "") -> Job | None:
        """A batch in one of these states on which nobody works: the oldest of the first project, by its id, after
        `after_project`, and around again."""
        work = partial(
            batch_sql.take_job,
            home=await self._home(),
            worker=secrets.token_hex(16),
            lease_s=self.lease_s,
            statuses=statuses,
            after_project=after_project,
        )
        return await self._write(work)

    async def keep_job(self, job: Job) -> None:
        """Raises `LostClaim` where the batch was cancelled or somebody else works on it."""
        await self._write(partial(batch_sql.keep_job, job=job, lease_s=self.lease_s))

    async def drop_lines(self, job: Job) -> bool:
        """Deletes some of what a process that died had added; whether there may be more. Raises `LostClaim`."""

        def work(connection: Connection) -> bool:
            batch_sql.keep_job(connection, job, self.lease_s)
            return batch_sql.delete_lines(connection, job.batch.id) == batch_sql.LINES_AT_ONCE

        return await self._write(work)

    async def add_lines(self, job: Job, lines: Sequence[NewLine]) -> list[NewLine]:
        """Those whose `custom_id` an earlier line has: where there is one, none is added. Raises `LostClaim`."""

        def work(connection: Connection) -> list[NewLine]:
            batch_sql.keep_job(connection, job, self.lease_s)
            known = line_sql.known(connection, job.batch.id, [line.custom_id for line in lines])
            repeated = [line for line in lines if line.custom_id in known]
            if not repeated:
                line_sql.add(connection, job.batch.id, lines)
            return repeated

        return await self._write(work)

    async def begin(self, job: Job) -> None:
        """Its lines are all there, and may run. Raises `LostClaim`."""
        await self._write(partial(batch_sql.end_job, job=job, status="in_progress", leased_until=0))

    async def fail(self, job: Job, errors: str) -> None:
        """Its input was refused: why, as JSON. Raises `LostClaim`."""
        await self._write(partial(batch_sql.end_job, job=job, status="failed", errors=errors))

    async def counts_of(self, batch_id: str) -> Counts:
        """Counts of a batch whose lines are still there, with the tokens that they used."""
        return await self._database.read(partial(batch_sql.whole_counts_of, batch_id=batch_id))

    async def finish(
        self,
        job: Job,
        counts: Counts,
        *,
        output: WrittenFile | None,
        error: WrittenFile | None,
        kept_bytes: int = 0,
    ) -> None:
        """It has ended, and its files are there, in one transaction; they are counted now instead of the `kept_bytes`
        of its lines' results. Raises `LostClaim`."""
        figures = {
            "lines": counts.total,
            "lines_completed": counts.completed,
            "lines_failed": counts.failed,
            "prompt_tokens": counts.prompt_tokens,
            "cached_tokens": counts.cached_tokens,
            "completion_tokens": counts.completion_tokens,
            "output_file_id": output.file_id if output else None,
            "error_file_id": error.file_id if error else None,
        }

        def work(connection: Connection) -> None:
            batch_sql.end_job(connection, job, job.batch.ends_as, **figures)
            for written in (output, error):
                if written is not None:
                    file_sql.finish(
                        connection, written.file_id, size=written.size, lifetime_s=written.lifetime_s
                    )
            file_sql.uncount(connection, job.batch.new.project_id, kept_bytes)

        await self._write(work)

    async def claim(self, batch_id: str, count: int) -> list[ClaimedLine]:
        """The next lines of a batch, to be run now: at most `count`."""
        claims = [secrets.token_hex(16) for _ in range(count)]
        work = partial(line_sql.claim, batch_id=batch_id, claims=claims, lease_s=self.lease_s)
        return await self._write(work)

    async def keep_lines(self, held: Sequence[ClaimedLine]) -> None:
        """To be called well within `lease_s`."""
        await self._write(partial(line_sql.keep, held=held, lease_s=self.lease_s))

    async def put_back(self, claimed: ClaimedLine, *, wait_s: float, counts: bool) -> None:
        """Nothing came of this attempt; the next may begin in `wait_s`. Unless it `counts`, it was none."""
        await self._write(partial(line_sql.put_back, claimed=claimed, wait_s=wait_s, counts=counts))

    async def fail_line(self, claimed: ClaimedLine, result: str) -> None:
        """The line failed, for nothing. Raises `LostClaim`."""
        await self._write(self.ending(claimed, "failed", result))

    def ending(
        self, claimed: ClaimedLine, state: LineState, result: str, tokens: LineTokens = NO_TOKENS
    ) -> Work[None]:
        """The work that ends the line in the transaction of its settlement. Raises `LostClaim` where somebody else has
        the line, and then nothing is settled."""
        return partial(line_sql.end, claimed=claimed, state=state, result=result, tokens=tokens)

    async def check_room(self, project_id: str, most_bytes: int) -> None:
        """Raises `ResultsFull` where a project's files, and the results of its lines, have so many bytes."""
        await self._database.read(partial(file_sql.check_room, project_id=project_id, most_bytes=most_bytes))

    async def ended_lines(self, batch_id: str, *, after: int, limit: int) -> list[EndedLine]:
        """Ended lines after line `after`, in their order: fewer where their results are long."""
        return await self._database.read(partial(line_sql.ended, batch_id=batch_id, after=after, limit=limit))

    async def clear_some(self) -> bool:
        """Deletes some lines of batches that have ended; whether there may be more."""
        return await self._write(batch_sql.clear_some)

    async def _write(self, work: Work[T]) -> T:
        return await self._database.write(PatientWork(work))
