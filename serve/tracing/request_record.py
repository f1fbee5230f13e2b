"""Record of a request and its spans: filled while it is served; its count, log line and trace are made of it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from billing.price import Cost
from billing.usage import MeteringStatus
from models.engine import TokenUsage
from serve.config.server_settings import TRACES_STOP_S, TracingSettings

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


class Tracer:
    """Begins traces; this one begins none."""

    def request(self, name: str, parent: RemoteParent | None) -> Span:
        """A request from outside."""
        return NO_SPAN

    def root(self, name: str) -> Span:
        """Work that nobody asked for at this moment."""
        return NO_SPAN


NO_TRACER = Tracer()


# Seconds for one batch of spans, attempts that failed included.
EXPORT_S = 5.0


class Tracing:
    """A tracer, and the end of it."""

    def __init__(self, settings: TracingSettings, counts: SpanCounts) -> None:
        """Raises `BadHeaders`."""
        self.tracer: Tracer = NO_TRACER
        self._stop = None
        if settings.endpoint is not None:
            from serve.tracing.otlp import OtlpTracer, Sampling, exporter_of

            sampling = Sampling(settings.sample_ratio, settings.callers_per_s)
            opened = OtlpTracer(sampling, exporter_of(settings), counts)
            self.tracer, self._stop = opened, opened.stop

    async def close(self) -> None:
        """Send what waits, for a second at most."""
        if self._stop is not None:
            await asyncio.to_thread(self._stop, TRACES_STOP_S)


# Of a request that had work done by a model.
WORK = (
    *("model", "stream", "prompt_tokens", "completion_tokens", "cached_tokens"),
    *("cost_nano_usd", "metering"),
)


@dataclass(slots=True)
class RequestRecord:
    """Ids, counts and seconds of one request: nothing that its caller wrote but the two ids it may choose."""

    request_id: str = ""
    trace_id: str | None = None
    span: Span = NO_SPAN
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
    queue_s: float | None = None
    first_token_s: float | None = None
    # The class of what ended it; None where nothing failed.
    error: str | None = None
    client_left: bool = False
    # The part of the reply that has left.
    status: int | None = None
    is_whole: bool = False

    def charge(self, usage: TokenUsage, cost: Cost, status: MeteringStatus) -> None:
        """One part was settled."""
        self.prompt_tokens += usage.prompt_tokens
        self.completion_tokens += usage.completion_tokens
        self.cached_tokens += usage.cached_tokens
        self.cost_nano_usd += cost.nano_usd
        self.metering = status

    def fail(self, error: BaseException) -> None:
        """A client that leaves, or a server that stops, is no failure."""
        if isinstance(error, Exception):
            self.error = type(error).__name__

    @property
    def ended(self) -> str:
        """`complete` for a refusal too, which is a whole reply; `failed` where the reply broke off by our fault, an
        error event included."""
        if self.client_left and not self.is_whole:
            return "client_left"
        failed = self.status is None or self.status >= 500 or (self.status < 400 and self.error is not None)
        return "failed" if not self.is_whole or failed else "complete"

    def fields(self) -> dict[str, Any]:
        """All that is known of it, in the order of its line."""
        names: tuple[str, ...] = ("status", "ended", "error", "workspace_id", "project_id", "key_id")
        if self.model is None:
            return {name: getattr(self, name) for name in names}
        seconds = {"queue_s": _rounded(self.queue_s), "first_token_s": _rounded(self.first_token_s)}
        return {name: getattr(self, name) for name in (*names, *WORK)} | seconds


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)


class ChargedWork:
    """A part of a request that is held and settled by itself. This one is free, and no metric counts it."""

    def settle(self, usage: TokenUsage, cost: Cost, status: MeteringStatus) -> None:
        current_record().charge(usage, cost, status)

    def lose(self) -> None:
        """Its usage is in neither the ledger nor the spool."""

    def fail(self, error: BaseException) -> None:
        """Before the hold is settled or released."""
        current_record().fail(error)

    def end(self) -> None:
        """On every way out."""


_current: ContextVar[RequestRecord | None] = ContextVar("request_record", default=None)


def current_record() -> RequestRecord:
    """That of the request, line or round that this task works for; of none, one that nobody reads."""
    return _current.get() or RequestRecord()


def take_record(record: RequestRecord) -> None:
    """From here on this task, and those that it begins, work for it."""
    _current.set(record)


def step(name: str, kind: SpanKind = "internal") -> Span:
    """A step of the request, line or round that this task works for; begun now."""
    record = _current.get()
    return NO_SPAN if record is None else record.span.child(name, kind)


@contextmanager
def traced(tracer: Tracer, name: str) -> Iterator[Span]:
    """The block as a trace of its own; what it begins are steps of it."""
    with tracer.root(name) as span:
        token = _current.set(RequestRecord(span=span))
        try:
            yield span
        finally:
            _current.reset(token)
