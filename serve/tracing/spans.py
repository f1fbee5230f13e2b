"""Spans as the service sees them: steps of whatever is traced in this task, which cost nothing where nothing is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Literal, Protocol

from serve.tracing.traceparent import RemoteParent

Value = str | int | float | bool
SpanKind = Literal["internal", "client"]


class Span(Protocol):
    """One step. As a context manager it ends with its block, and fails where that raises."""

    @property
    def trace_id(self) -> str | None:
        """None where it is not traced."""

    def set(self, name: str, value: Value | None) -> None:
        """An attribute; none where there is no value."""

    def rename(self, name: str) -> None: ...

    def fail(self, kind: str) -> None:
        """It did not do what it was for; `kind` is the class of an error, never its message."""

    def child(self, name: str, kind: SpanKind = "internal") -> Span: ...

    def headers(self) -> Mapping[str, str]:
        """What names it as the parent to another process."""

    def end(self) -> None:
        """Once; what comes after is not noted."""

    def __enter__(self) -> Span: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class NoSpan:
    """The step of what is not traced."""

    trace_id = None

    def set(self, name: str, value: Value | None) -> None: ...

    def rename(self, name: str) -> None: ...

    def fail(self, kind: str) -> None: ...

    def child(self, name: str, kind: SpanKind = "internal") -> Span:
        return self

    def headers(self) -> Mapping[str, str]:
        return {}

    def end(self) -> None: ...

    def __enter__(self) -> Span:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


NO_SPAN: Span = NoSpan()
_current: ContextVar[Span] = ContextVar("span", default=NO_SPAN)


def step(name: str, kind: SpanKind = "internal") -> Span:
    """A step of the request, line or round that this task works for; begun now."""
    return _current.get().child(name, kind)


def current_span() -> Span:
    """The whole request, line or round."""
    return _current.get()


def take_span(span: Span) -> None:
    """What this task, and those that it begins, work for from here on."""
    _current.set(span)


class Tracer(Protocol):
    """Begins traces."""

    def request(self, name: str, parent: RemoteParent | None) -> Span:
        """A request from outside."""

    def root(self, name: str) -> Span:
        """Work that nobody asked for at this moment."""


class NoTracer:
    def request(self, name: str, parent: RemoteParent | None) -> Span:
        return NO_SPAN

    def root(self, name: str) -> Span:
        return NO_SPAN


NO_TRACER: Tracer = NoTracer()


@contextmanager
def traced(tracer: Tracer, name: str) -> Iterator[Span]:
    """The block as a trace of its own; what it begins are steps of it."""
    with tracer.root(name) as span:
        token = _current.set(span)
        try:
            yield span
        finally:
            _current.reset(token)
