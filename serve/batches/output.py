"""Writes what became of a batch's lines, in their order: those that completed into one file, the rest into another."""

from contextlib import AsyncExitStack

from billing.batches.batch import Batch, EndedLine, kept_bytes
from billing.batches.batch_store import BatchStore, WrittenFile
from billing.batches.file_writer import FileWriter, written_file
from billing.batches.job_sql import Job
from billing.batches.stored_file import StoredFile
from serve.batches.files import Files
from serve.batches.line_result import given_up_line
from serve.http.request_id import fresh_id

LINES_AT_ONCE = 50


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
