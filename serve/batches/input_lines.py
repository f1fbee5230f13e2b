"""The lines of an input file: found, read in bounded memory, and checked one by one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from billing.batches.batch import NewLine
from serve.http.request_body import InvalidBody, parse_json

LINES_AT_ONCE = 500
BYTES_AT_ONCE = 2**20
MAX_CUSTOM_ID_CHARS = 512


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
    """What a line asks for."""

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
    """What a line asks for. Raises `BadLine`."""
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
