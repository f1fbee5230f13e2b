"""Notes on a request, and a log record as one line of JSON or text: none can make two lines, or one without end."""

from __future__ import annotations

import json
import logging
import re
import traceback
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import perf_counter
from types import TracebackType
from typing import Any, Literal


@dataclass(slots=True)
class RequestNotes:
    """Ids, counts and seconds of one request: nothing that its caller wrote but the two ids it may choose."""

    request_id: str
    trace_id: str | None = None
    began: float = field(default_factory=perf_counter)
    workspace_id: str | None = None
    project_id: str | None = None
    key_id: str | None = None
    model: str | None = None
    stream: bool = False
    # Of all that the request was charged for: a batch of compressions has several parts.
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cost_nano_usd: int = 0
    metering: str | None = None
    # The class of what ended it; None where nothing failed.
    error: str | None = None
    client_left: bool = False
    queue_s: float | None = None
    first_token_s: float | None = None
    _asked_at: float | None = None

    def charge(self, *, prompt: int, completion: int, cached: int, cost_nano_usd: int, metering: str) -> None:
        """One part was settled."""
        self.prompt_tokens += prompt
        self.completion_tokens += completion
        self.cached_tokens += cached
        self.cost_nano_usd += cost_nano_usd
        self.metering = metering

    def ask_engine(self) -> None:
        """The request is on its way to an engine, and waits for its turn."""
        self._asked_at = perf_counter()

    def see(self, completion_tokens: int) -> None:
        """A sign of life from the engine: the first means that it was given the prompt."""
        if self.queue_s is None and self._asked_at is not None:
            self.queue_s = perf_counter() - self._asked_at
        if completion_tokens and self.first_token_s is None:
            self.first_token_s = perf_counter() - self.began


_current: ContextVar[RequestNotes | None] = ContextVar("request_notes", default=None)


def current_notes() -> RequestNotes | None:
    """Those of the request that this task works for; None where none are taken."""
    return _current.get()


def take_notes(notes: RequestNotes) -> None:
    """From here on in this task, and in those that it begins."""
    _current.set(notes)


LogFormat = Literal["text", "json"]
# Characters of a message, and of an exception with its frames; in JSON a character takes up to 12 bytes.
LONGEST_MESSAGE = 4000
LONGEST_EXCEPTION = 8000
# Under this name a record brings fields of its own.
FIELDS = "pith_fields"
# Keys, admin keys, secrets of webhooks, and what a header of authorization has.
_KEY = re.compile(
    r"pith_(?:admin|[A-Za-z0-9]{8,})_[\w-]{16,}|whsec_[\w+/=-]{16,}|(?i:bearer)\s+\S+", re.ASCII
)
# What these say repeats the input: pydantic shows the value that it refuses, SQLAlchemy the parameters.
_REPEATS_INPUT = ("pydantic", "pydantic_core", "sqlalchemy", "jinja2", "json", "orjson", "jsonschema")


class JsonLines(logging.Formatter):
    """One JSON object a record, in ASCII: whatever reads it by lines cannot be led astray."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message_of(record),
            **_fields_of(record),
        }
        if record.exc_info and record.exc_info[1] is not None:
            fields["exception"] = exception_text(record.exc_info[1])
        return json.dumps(fields, default=str, separators=(",", ":"))


class TextLines(logging.Formatter):
    """Time, level, logger, message, and what else is known as `name=value`; of an exception, indented lines. A value
    that could be taken for more than one field is in quotes."""

    def format(self, record: logging.LogRecord) -> str:
        fields = _fields_of(record)
        said = "".join(f" {name}={_quoted(value)}" for name, value in fields.items() if value is not None)
        message = _plain(_message_of(record))
        line = f"{_time_of(record)} {record.levelname} {record.name}: {message}{said}"
        if record.exc_info and record.exc_info[1] is not None:
            frames = exception_text(record.exc_info[1]).split("\n")
            line += "".join(f"\n    {_plain(frame)}" for frame in frames)
        return line


def formatter(log_format: LogFormat) -> logging.Formatter:
    return JsonLines() if log_format == "json" else TextLines()


def exception_text(error: BaseException) -> str:
    """The frames and the error, with those that it came from; the last characters where it is long."""
    said: list[str] = []
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        said.append("\n".join([*_frames(each.__traceback__), _said(each)]))
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return _blanked("\ncaused\n".join(reversed(said)))[-LONGEST_EXCEPTION:]


def _frames(trace: TracebackType | None) -> list[str]:
    frames = traceback.extract_tb(trace, limit=-30)
    return [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]


def _said(error: BaseException) -> str:
    kind = type(error)
    if any(base.__module__.partition(".")[0] in _REPEATS_INPUT for base in kind.__mro__):
        return f"{kind.__qualname__}: (its message may repeat what was sent, and is left out)"
    return f"{kind.__qualname__}: {error}"


def _message_of(record: logging.LogRecord) -> str:
    try:
        message = record.getMessage()
    except Exception as error:
        # A call with the wrong arguments must not end the request that made it.
        message = f"{record.msg!r} cannot be written: {type(error).__name__}"
    if len(message) > LONGEST_MESSAGE:
        message = f"{message[:LONGEST_MESSAGE]}… ({len(message)} characters)"
    return _blanked(message)


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    fields = {**_ids(), **getattr(record, FIELDS, {})}
    return {name: _blanked(value) if isinstance(value, str) else value for name, value in fields.items()}


def _blanked(text: str) -> str:
    return _KEY.sub("(key)", text)


def _quoted(value: object) -> str:
    text = _plain(value)
    if text and not any(mark in text for mark in ' ="'):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _plain(value: object) -> str:
    text = str(value)
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text
    )


def _time_of(record: logging.LogRecord) -> str:
    return (
        datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def _ids() -> Mapping[str, str]:
    notes = current_notes()
    if notes is None:
        return {}
    ids = {"request_id": notes.request_id}
    return ids if notes.trace_id is None else {**ids, "trace_id": notes.trace_id}
