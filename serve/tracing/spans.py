"""Spans as the service sees them: steps of whatever is traced in this task, which cost nothing where nothing is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

# Of a later version more may follow.
_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[\x21-\x7e]{0,200})?")
LONGEST_STATE = 512


@dataclass(frozen=True, slots=True)
class RemoteParent:
    """The caller's span. `state` is empty where it is missing, too long or not plain text."""

    trace_id: str
    span_id: str
    is_sampled: bool
    state: str = ""


def remote_parent(headers: Iterable[tuple[bytes, bytes]]) -> RemoteParent | None:
    """The parent in the headers, their names in lower case; None where there is none, or it is not valid."""
    parents, states = [], []
    for name, value in headers:
        if name == b"traceparent":
            parents.append(value)
        elif name == b"tracestate":
            states.append(value)
    if len(parents) != 1:
        return None
    found = _TRACEPARENT.fullmatch(parents[0].strip(b" \t"))
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    if version == b"ff" or (version == b"00" and more) or not trace.strip(b"0") or not span.strip(b"0"):
        return None
    return RemoteParent(trace.decode(), span.decode(), bool(int(flags, 16) & 1), _state(states))


def _state(values: list[bytes]) -> str:
    state = b",".join(values)
    is_plain = len(state) <= LONGEST_STATE and all(0x20 <= letter < 0x7F for letter in state)
    return state.decode("ascii") if is_plain else ""


Value = str | int | float | bool
SpanKind = Literal["internal", "client"]


class Span:
    """One step. As a context manager it ends with its block, and fails where that raises. This one is of what is not
    traced, and does nothing; `serve.tracing.otlp.OtlpSpan` is recorded."""

    @property
    def trace_id(self) -> str | None:
        """None where it is not traced."""
        return None

    def set(self, name: str, value: Value | None) -> None:
        """An attribute; none where there is no value."""

    def rename(self, name: str) -> None: ...

    def fail(self, kind: str) -> None:
        """It did not do what it was for; `kind` is the class of an error, never its message."""

    def child(self, name: str, kind: SpanKind = "internal") -> Span:
        return self

    def headers(self) -> Mapping[str, str]:
        """The headers that name it as the parent to another process."""
        return {}

    def end(self) -> None:
        """Once; what comes after is not noted."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


NO_SPAN = Span()
_current: ContextVar[Span] = ContextVar("span", default=NO_SPAN)


def step(name: str, kind: SpanKind = "internal") -> Span:
    """A step of the request, line or round that this task works for; begun now."""
    return _current.get().child(name, kind)


def take_span(span: Span) -> None:
    """From here on this task, and those that it begins, work for it."""
    _current.set(span)


class Tracer:
    """Begins traces; this one begins none."""

    def request(self, name: str, parent: RemoteParent | None) -> Span:
        """A request from outside."""
        return NO_SPAN

    def root(self, name: str) -> Span:
        """Work that nobody asked for at this moment."""
        return NO_SPAN


NO_TRACER = Tracer()


@contextmanager
def traced(tracer: Tracer, name: str) -> Iterator[Span]:
    """The block as a trace of its own; what it begins are steps of it."""
    with tracer.root(name) as span:
        token = _current.set(span)
        try:
            yield span
        finally:
            _current.reset(token)
