"""Spans as the service sees them, and their collector: OpenTelemetry is imported only where one is configured."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    from serve.tracing.otlp import SpanCounts

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


Protocol = Literal["http", "grpc"]
# Seconds for one batch of spans, attempts that failed included.
EXPORT_S = 5.0
STOP_S = 1.0


class BadHeaders(ValueError):
    """The file of headers cannot be read, or is not one `Name: value` a line."""


@dataclass(frozen=True, slots=True)
class TracingTerms:
    """The address of a collector, and the share of requests that is traced."""

    endpoint: str
    protocol: Protocol
    sample_ratio: float
    callers_per_s: float
    tenants: bool
    headers_file: Path | None

    @property
    def traces_url(self) -> str:
        """The endpoint, of OTLP over HTTP with its usual path where it names none."""
        if self.protocol == "grpc" or urlsplit(self.endpoint).path.strip("/"):
            return self.endpoint
        return self.endpoint.rstrip("/") + "/v1/traces"

    def engine_environment(self) -> dict[str, str]:
        """For the OpenTelemetry of an engine: what is not the child of a traced request is not traced. Raises
        `BadHeaders`."""
        given = ",".join(f"{quote(name)}={quote(value)}" for name, value in self.headers().items())
        return {
            "OTEL_SERVICE_NAME": "pith-engine",
            "OTEL_TRACES_SAMPLER": "parentbased_always_off",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc" if self.protocol == "grpc" else "http/protobuf",
            # How long a collector that is away can hold up the end of an engine.
            "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": f"{STOP_S:g}",
            "OTEL_BSP_SCHEDULE_DELAY": "1000",
            **({"OTEL_EXPORTER_OTLP_TRACES_HEADERS": given} if given else {}),
        }

    def headers(self) -> dict[str, str]:
        """Headers that the collector wants with each batch, a key for one; names in lower case. Raises `BadHeaders`."""
        if self.headers_file is None:
            return {}
        try:
            lines = self.headers_file.read_text(encoding="ascii").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise BadHeaders(f"{self.headers_file}: cannot be read: {type(error).__name__}") from None
        return dict(self._header(number, line) for number, line in enumerate(lines, 1) if line.strip())

    def _header(self, number: int, line: str) -> tuple[str, str]:
        name, colon, value = line.partition(":")
        if not colon or not name.strip().replace("-", "").isalnum():
            # What the line says may be a secret.
            raise BadHeaders(f"{self.headers_file}: line {number} is not `Name: value`")
        return name.strip().lower(), value.strip()


class Tracing:
    """A tracer, and the end of it."""

    def __init__(self, terms: TracingTerms | None, counts: SpanCounts) -> None:
        """Raises `BadHeaders`."""
        self.tracer: Tracer = NO_TRACER
        self._stop = None
        if terms is not None:
            from serve.tracing.otlp import OtlpTracer, Sampling, exporter_of

            sampling = Sampling(terms.sample_ratio, terms.callers_per_s)
            opened = OtlpTracer(sampling, exporter_of(terms, terms.headers()), counts)
            self.tracer, self._stop = opened, opened.stop

    async def close(self) -> None:
        """Send what waits, for a second at most."""
        if self._stop is not None:
            await asyncio.to_thread(self._stop, STOP_S)
