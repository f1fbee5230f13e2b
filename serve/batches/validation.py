"""Checks a batch's input file, line by line, before any line is run."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import orjson

from billing.batches.batch import NewLine
from billing.batches.batch_store import BatchStore
from billing.batches.folder import FileFolder
from billing.batches.job_sql import Job
from serve.batches.endpoints import Endpoint, plain_path
from serve.batches.input_lines import (
    BadLine,
    LineError,
    RawLine,
    asked_of,
    chunks_of,
    raw_lines,
    repeated_ids,
)

# More are not looked for, nor are they kept beyond so many bytes.
MAX_ERRORS = 100
MAX_ERRORS_BYTES = 2**16
# Of what is the caller's, in a message.
MOST_QUOTED = 64


@dataclass(frozen=True, slots=True)
class LineBounds:
    """What a batch may be."""

    lines: int
    bytes_of_one: int


class Validation:
    """One batch's. Its lines are added as they are found to be right; none is run before all are."""

    def __init__(self, store: BatchStore, job: Job, endpoint: Endpoint | None, bounds: LineBounds) -> None:
        self._store = store
        self._job = job
        self._endpoint = endpoint
        self._bounds = bounds
        self._errors: list[LineError] = []
        # Requests, and lines with the empty ones.
        self._count = self._seen = 0

    async def run(self, folder: FileFolder) -> None:
        """The batch is in progress then, or it has failed. Raises `LostClaim`, `LedgerUnavailable` and what `folder`
        raises."""
        while await self._store.drop_lines(self._job):
            pass
        file = await asyncio.to_thread(folder.open, self._job.batch.new.input_file_id, buffered=True)
        try:
            await self._add_all(file)
        finally:
            file.close()
        if not self._errors and not self._count:
            self._errors.append(LineError("empty_file", "The file has no request"))
        if self._errors:
            await self._store.fail(self._job, self._listed())
        else:
            await self._store.begin(self._job)

    async def _add_all(self, file: BinaryIO) -> None:
        chunks = chunks_of(raw_lines(file, self._bounds.bytes_of_one))
        while (checked := await asyncio.to_thread(self._next, chunks)) is not None:
            await self._add(checked)
            if self._is_too_long:
                message = f"A batch may have {self._bounds.lines} requests at the most"
                self._errors = [LineError("too_many_requests", message)]
            if len(self._errors) >= MAX_ERRORS or self._is_too_long:
                return

    @property
    def _is_too_long(self) -> bool:
        # 200 MB of empty lines would take minutes to count.
        return self._count > self._bounds.lines or self._seen > 2 * self._bounds.lines

    async def _add(self, lines: list[NewLine]) -> None:
        if self._errors or not lines:
            # Nothing is added to what is refused, and the batch is still ours.
            await self._store.keep_job(self._job)
            return
        self._errors += map(_duplicate, await self._store.add_lines(self._job, lines))

    def _next(self, chunks: Iterator[list[RawLine]]) -> list[NewLine] | None:
        """The next lines that are right; None at the end. What is wrong is noted."""
        chunk = next(chunks, None)
        if chunk is None:
            return None
        self._seen = chunk[-1].number
        lines = [line for raw in chunk if (line := self._checked(raw)) is not None]
        self._count += len(lines)
        self._errors += map(_duplicate, repeated_ids(lines))
        return lines

    def _checked(self, raw: RawLine) -> NewLine | None:
        if raw.content is not None and not raw.content.strip():
            return None
        try:
            return self._line(raw)
        except BadLine as bad:
            self._errors.append(bad.at(raw.number))
            return None

    def _line(self, raw: RawLine) -> NewLine:
        if raw.content is None:
            most = self._bounds.bytes_of_one
            raise BadLine("line_too_long", f"A line may have {most} bytes at the most")
        asked = asked_of(raw.content)
        if asked.method != "POST":
            raise BadLine("invalid_method", "method: must be POST", "method")
        if plain_path(asked.url) != plain_path(self._job.batch.new.endpoint):
            raise BadLine("mismatched_url", f"url: must be {self._job.batch.new.endpoint}", "url")
        self._check_model(asked.body.get("model"))
        return NewLine(raw.number, asked.custom_id, raw.offset, len(raw.content))

    def _check_model(self, model: object) -> None:
        if self._endpoint is None:
            raise BadLine("invalid_endpoint", "This server does not run requests of this kind any more")
        if model is None:
            return
        if not isinstance(model, str):
            raise BadLine("model_not_found", "model: must be a string", "body.model")
        if model not in self._endpoint.models:
            raise BadLine("model_not_found", f"model {quoted(model)} is not served here", "body.model")

    def _listed(self) -> str:
        return listed_errors(self._errors)


def listed_errors(errors: Sequence[LineError]) -> str:
    """The first of them, as JSON, with a bound on their number and size."""
    listed: list[dict[str, Any]] = []
    size = 0
    for error in errors[:MAX_ERRORS]:
        fields = error.fields()
        size += len(orjson.dumps(fields))
        if size > MAX_ERRORS_BYTES:
            break
        listed.append(fields)
    return orjson.dumps(listed).decode()


def quoted(given: str) -> str:
    """What a caller gave, as far as an error repeats it."""
    return repr(given) if len(given) <= MOST_QUOTED else f"{given[:MOST_QUOTED]!r}…"


def _duplicate(line: NewLine) -> LineError:
    message = f"custom_id: {quoted(line.custom_id)} is an earlier line's"
    return LineError("duplicate_custom_id", message, line.number, "custom_id")
