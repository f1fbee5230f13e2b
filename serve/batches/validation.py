"""Validation of an input file: its lines are found, read in bounded memory, and checked one by one."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import orjson

from billing.batches.batch import NewLine
from billing.batches.batch_sql import Job
from billing.batches.batch_store import BatchStore
from billing.batches.file_store import FileFolder
from serve.batches.endpoints import Endpoint, plain_path
from serve.http.request_body import InvalidBody, parse_json

LINES_AT_ONCE = 500
BYTES_AT_ONCE = 2**20
MAX_CUSTOM_ID_CHARS = 512
# More are not looked for, nor are they kept beyond so many bytes.
MAX_ERRORS = 100
MAX_ERRORS_BYTES = 2**16
# Of what is the caller's, in a message.
MOST_QUOTED = 64


@dataclass(frozen=True, slots=True)
class RawLine:
    """A line as it is in the file; `content` is None where it is longer than a line may be."""

    number: int
    offset: int
    content: bytes | None


@dataclass(frozen=True, slots=True)
class LineError:
    """Why an input file is refused, as OpenAI lists it."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None

    def fields(self) -> dict[str, Any]:
        return {"code": self.code, "line": self.line, "message": self.message, "param": self.param}


@dataclass(frozen=True, slots=True)
class AskedLine:
    """The request of a line."""

    custom_id: str
    method: str
    url: str
    body: dict[str, Any]


class BadLine(ValueError):
    """A line that cannot be run."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param

    def at(self, number: int) -> LineError:
        return LineError(self.code, str(self), number, self.param)


def raw_lines(file: BinaryIO, most_bytes: int) -> Iterator[RawLine]:
    """All lines, the empty ones included; never more than `most_bytes` of one in memory."""
    number = offset = 0
    while content := file.readline(most_bytes + 2):
        number, length = number + 1, len(content)
        kept = content if len(content.rstrip(b"\r\n")) <= most_bytes else None
        while not content.endswith(b"\n") and (content := file.readline(BYTES_AT_ONCE)):
            length += len(content)
            kept = None
        yield RawLine(number, offset, kept)
        offset += length


def chunks_of(lines: Iterator[RawLine]) -> Iterator[list[RawLine]]:
    """So many lines as are looked at in one go."""
    chunk: list[RawLine] = []
    size = 0
    for line in lines:
        chunk.append(line)
        size += len(line.content or b"")
        if len(chunk) == LINES_AT_ONCE or size >= BYTES_AT_ONCE:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def asked_of(content: bytes) -> AskedLine:
    """The request of a line. Raises `BadLine`."""
    try:
        value = parse_json(content, None)
    except InvalidBody as error:
        raise BadLine("invalid_json_line", error.issues[0].msg) from None
    if not isinstance(value, dict):
        raise BadLine("invalid_json_line", "A line must be a JSON object")
    custom_id, body = value.get("custom_id"), value.get("body")
    if not isinstance(custom_id, str) or not 1 <= len(custom_id) <= MAX_CUSTOM_ID_CHARS:
        message = f"custom_id: must be a string of 1 to {MAX_CUSTOM_ID_CHARS} characters"
        raise BadLine("invalid_custom_id", message, "custom_id")
    if not custom_id.isprintable():
        raise BadLine("invalid_custom_id", "custom_id: must be printable", "custom_id")
    if not isinstance(body, dict):
        raise BadLine("invalid_body", "body: must be an object", "body")
    return AskedLine(custom_id, _text(value, "method"), _text(value, "url"), body)


def _text(value: dict[str, Any], name: str) -> str:
    given = value.get(name)
    if not isinstance(given, str):
        raise BadLine(f"invalid_{name}", f"{name}: must be a string", name)
    return given


def repeated_ids(lines: Sequence[NewLine]) -> list[NewLine]:
    """Those whose `custom_id` an earlier one of them has."""
    seen: set[str] = set()
    repeated = []
    for line in lines:
        if line.custom_id in seen:
            repeated.append(line)
        seen.add(line.custom_id)
    return repeated


@dataclass(frozen=True, slots=True)
class LineBounds:
    """Bounds on a batch."""

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
    """A caller's text, as far as an error repeats it."""
    return repr(given) if len(given) <= MOST_QUOTED else f"{given[:MOST_QUOTED]!r}…"


def _duplicate(line: NewLine) -> LineError:
    message = f"custom_id: {quoted(line.custom_id)} is an earlier line's"
    return LineError("duplicate_custom_id", message, line.number, "custom_id")
