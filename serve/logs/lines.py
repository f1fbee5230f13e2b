"""A log record as one line of JSON or text: none can make two lines, or one without end."""

from __future__ import annotations

import json
import logging
import re
import traceback
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType, TracebackType
from typing import Any, Literal

_named: ContextVar[Mapping[str, str]] = ContextVar("named", default=MappingProxyType({}))


def name_lines(request_id: str, trace_id: str | None = None) -> None:
    """Lines of this task from here on, and of those that it begins, say what they are about."""
    _named.set({"request_id": request_id} | ({} if trace_id is None else {"trace_id": trace_id}))


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
    fields = {**_named.get(), **getattr(record, FIELDS, {})}
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
