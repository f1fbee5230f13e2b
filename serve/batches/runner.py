"""The runner of batches: projects take turns, each line runs once, and the results become files."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from billing.batches.batch import (
    Batch,
    BatchStatus,
    ClaimedLine,
    EndedLine,
    LostClaim,
    StorageFull,
    StorageUnavailable,
    StoredFile,
    kept_bytes,
)
from billing.batches.batch_sql import Job
from billing.batches.batch_store import BatchStore, WrittenFile
from billing.batches.file_store import FileWriter, written_file
from billing.errors import BillingError, LedgerUnavailable
from serve.batches.endpoints import Endpoints, plain_path
from serve.batches.files import Files
from serve.batches.line_run import LineRunner, given_up_line
from serve.batches.validation import LineBounds, LineError, Validation, listed_errors
from serve.http.middleware import fresh_id
from serve.money.admission import Interactive

# After the last interactive request, before batches have the process to themselves again.
QUIET_S = 2.0
LINES_AT_ONCE = 50
log = logging.getLogger("pith.batches")
# How soon new lines are looked for, where there were none.
IDLE_S = 1.0
# How soon it is seen that more lines may run.
TICK_S = 0.25


class BatchTurns:
    """A project with a hundred batches has as many turns as one with a single batch."""

    def __init__(self) -> None:
        # By project, the one whose turn is next first; so are its batches.
        self._batches: dict[str, deque[str]] = {}

    def see(self, running: Sequence[tuple[str, str]]) -> None:
        """These batches, each with its project, are run now. Those that were there keep their turns."""
        found: dict[str, list[str]] = {}
        for batch_id, project_id in running:
            found.setdefault(project_id, []).append(batch_id)
        projects = [*(project for project in self._batches if project in found), *found]
        self._batches = {project: self._merged(project, found[project]) for project in projects}

    def _merged(self, project_id: str, batch_ids: Sequence[str]) -> deque[str]:
        there, known = dict.fromkeys(batch_ids), self._batches.get(project_id, deque())
        kept = dict.fromkeys(batch_id for batch_id in known if batch_id in there)
        return deque(kept | there)

    def next(self, empty: Collection[str]) -> str | None:
        """The batch whose turn it is, `empty` ones left out; None where there is none."""
        for project_id, batches in self._batches.items():
            for _ in range(len(batches)):
                batch_id = batches[0]
                batches.rotate(-1)
                if batch_id not in empty:
                    self._batches[project_id] = self._batches.pop(project_id)
                    return batch_id
        return None


@dataclass(frozen=True, slots=True)
class Pace:
    """`alone` lines at once, or `beside` interactive requests."""

    interactive: Interactive
    alone: int
    beside: int

    def lines(self) -> int:
        is_quiet = self.interactive.quiet_s() >= QUIET_S
        return self.alone if is_quiet else min(self.alone, self.beside)


class OutputFiles:
    """The files of one batch, each made with its first line."""

    def __init__(self, files: Files, batch: Batch, stack: AsyncExitStack) -> None:
        self._files = files
        self._batch = batch
        self._stack = stack
        self._writers: dict[str, FileWriter] = {}
        # Of the results that the lines had in the ledger, as they were counted there.
        self.kept_bytes = 0

    async def add(self, line: EndedLine) -> None:
        """Raises what `FileWriter.write` raises."""
        kind = "output" if line.state == "completed" else "error"
        if kind not in self._writers:
            self._writers[kind] = await self._opened(kind)
        self.kept_bytes += kept_bytes(line.result)
        result = line.result or given_up_line(self._batch.id, line.custom_id, line.number, line.state)
        await self._writers[kind].write(result.encode() + b"\n")

    async def close(self) -> dict[str, WrittenFile]:
        """They are on disk, whole. Raises what `FileWriter.close` raises."""
        for writer in self._writers.values():
            await writer.close()
        lifetime_s = self._files.terms.lifetime_s
        return {
            kind: WrittenFile(writer.file_id, writer.size, lifetime_s)
            for kind, writer in self._writers.items()
        }

    async def _opened(self, kind: str) -> FileWriter:
        batch = self._batch
        name = f"{batch.id}_{kind}.jsonl"
        # What was paid for is written whatever the project's bounds, and counts against them.
        new = StoredFile(f"file-{fresh_id()}", batch.new.project_id, name, "batch_output", 0, 0, 0)
        return await self._stack.enter_async_context(
            written_file(self._files.store, self._files.folder, new, None)
        )


async def write_output(store: BatchStore, files: Files, job: Job) -> None:
    """The batch has ended then, and its files are there, or nothing of them is left.

    Raises `LostClaim`, `LedgerUnavailable`, `StorageFull` and `StorageUnavailable`.
    """
    async with AsyncExitStack() as stack:
        output, after = OutputFiles(files, job.batch, stack), 0
        # One that was cancelled before it began has no requests.
        while job.batch.moments.in_progress is not None:
            lines = await store.ended_lines(job.batch.id, after=after, limit=LINES_AT_ONCE)
            if not lines:
                break
            for line in lines:
                await output.add(line)
            after = lines[-1].number
            await store.keep_job(job)
        written = await output.close()
        counts = await store.counts_of(job.batch.id)
        await store.finish(
            job,
            counts,
            output=written.get("output"),
            error=written.get("error"),
            kept_bytes=output.kept_bytes,
        )


class BatchJobs:
    """Work for a batch as a whole: its input checked, its files written, its lines deleted at the end."""

    def __init__(self, store: BatchStore, files: Files, endpoints: Endpoints, bounds: LineBounds) -> None:
        self._store = store
        self._files = files
        self._endpoints = endpoints
        self._bounds = bounds
        # Of each kind of work, whose batch was last.
        self._last_project: dict[BatchStatus, str] = {}
        self._is_retiring = False

    def retire(self) -> None:
        """Begin nothing more: a process with another configuration does."""
        self._is_retiring = True

    async def once(self) -> None:
        """Until nothing is left to do now, some of every kind in turn, so that no kind of work waits for another.

        Raises `LedgerUnavailable`; and, once everything else was done, `StorageFull` or `StorageUnavailable`.
        """
        failures: list[BillingError] = []
        goes_on = await self._store.any_unfinished()
        while goes_on and not self._is_retiring:
            await self._store.advance()
            validated = await self._work_on("validating", self._validate, failures)
            written = await self._work_on("finalizing", self._write_output, failures)
            goes_on = await self._store.clear_some() or validated or written
        if failures:
            raise failures[0]

    async def _work_on(
        self, status: BatchStatus, work: Callable[[Job], Awaitable[None]], failures: list[BillingError]
    ) -> bool:
        """On one batch, of the project whose turn it is; False where there is none. What fails is its own concern: it
        is left alone until its lease is over."""
        job = await self._store.take_job([status], after_project=self._last_project.get(status, ""))
        if job is None:
            return False
        self._last_project[status] = job.batch.new.project_id
        try:
            await work(job)
        except LostClaim as lost:
            log.info("%s", lost)
        except LedgerUnavailable:
            raise
        except (StorageFull, StorageUnavailable) as error:
            log.warning("%s stays %s: %s", job.batch.id, status, error)
            failures.append(error)
        except Exception:
            log.exception("%s stays %s", job.batch.id, status)
        return True

    async def _validate(self, job: Job) -> None:
        endpoint = self._endpoints.get(plain_path(job.batch.new.endpoint))
        try:
            await Validation(self._store, job, endpoint, self._bounds).run(self._files.folder)
        except (LostClaim, LedgerUnavailable, StorageFull, StorageUnavailable):
            raise
        except Exception:
            log.exception("the input of %s could not be checked", job.batch.id)
            problem = LineError(
                "internal_error", "The input could not be checked; this is the server's fault"
            )
            await self._store.fail(job, listed_errors([problem]))

    async def _write_output(self, job: Job) -> None:
        await write_output(self._store, self._files, job)


class BatchRunner:
    """Claims lines, runs them, and keeps what it runs its own."""

    def __init__(self, store: BatchStore, lines: LineRunner, pace: Pace) -> None:
        self._store = store
        self._lines = lines
        self._pace = pace
        self._running: dict[asyncio.Task[None], ClaimedLine] = {}
        self._turns = BatchTurns()
        self._look_at = 0.0
        self._kept_at = 0.0
        self._is_retiring = False

    def retire(self) -> int:
        """Claim no more lines: a process with another configuration does. Returns how many still run."""
        self._is_retiring = True
        return len(self._running)

    async def once(self) -> None:
        """Until nothing is left to run. Raises `LedgerUnavailable`, but not while something is running."""
        try:
            while True:
                failure = await self._keep_and_fill()
                if not self._running:
                    break
                await asyncio.wait(self._running, timeout=TICK_S, return_when=asyncio.FIRST_COMPLETED)
                self._forget_done()
        except BaseException:
            await self._stop()
            raise
        if failure is not None:
            raise failure

    async def _keep_and_fill(self) -> BillingError | None:
        """What kept it from doing so, if anything did: what is running goes on."""
        try:
            await self._keep()
            await self._fill()
        except BillingError as error:
            self._look_at = _now() + IDLE_S
            return error
        return None

    async def _fill(self) -> None:
        free, now = self._pace.lines() - len(self._running), _now()
        if self._is_retiring or free <= 0 or now < self._look_at:
            return
        found = await self._claimed(free)
        if not self._running:
            self._kept_at = now
        for claimed in found:
            self._running[asyncio.create_task(self._lines.run(claimed))] = claimed
        # Only where there may be more, it is soon looked for them.
        self._look_at = now if len(found) == free else now + IDLE_S

    async def _claimed(self, count: int) -> list[ClaimedLine]:
        """The next lines, one of each project in turn, and of its batches in turn."""
        self._turns.see(await self._store.running())
        found: list[ClaimedLine] = []
        empty: set[str] = set()
        while len(found) < count and (batch_id := self._turns.next(empty)) is not None:
            claimed = await self._store.claim(batch_id, 1)
            if not claimed:
                empty.add(batch_id)
            found += claimed
        return found

    async def _keep(self) -> None:
        if self._running and _now() - self._kept_at > self._store.lease_s / 4:
            await self._store.keep_lines(list(self._running.values()))
            self._kept_at = _now()

    def _forget_done(self) -> None:
        self._running = {task: line for task, line in self._running.items() if not task.done()}

    async def _stop(self) -> None:
        """What is running is put back, and nothing is charged for it."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._running = {}


def _now() -> float:
    return asyncio.get_running_loop().time()
