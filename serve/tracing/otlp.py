"""Spans by OpenTelemetry's SDK, sent by OTLP. Nothing global is set: other libraries trace nothing by it."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from random import random
from time import monotonic
from types import TracebackType
from typing import Protocol

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from serve.config.server_settings import TracingSettings
from serve.tracing.request_record import EXPORT_S, NO_SPAN, RemoteParent, Span, SpanKind, Tracer, Value


class Sampling:
    """`ratio` of all requests, drawn by chance; and of those that their callers trace, `callers_per_s` a second. No
    caller decides: neither by a flag, beyond that rate, nor by a trace id, which OpenTelemetry's own samplers go by."""

    def __init__(
        self,
        ratio: float,
        callers_per_s: float,
        *,
        draw: Callable[[], float] = random,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._ratio = ratio
        self._per_s = callers_per_s
        self._draw = draw
        self._clock = clock
        # A second's worth may come at once, and one where that is less.
        self._most = max(1.0, callers_per_s)
        self._left = self._most if callers_per_s else 0.0
        self._filled_at = clock()

    def takes(self, parent: RemoteParent | None) -> bool:
        if self._ratio and self._draw() < self._ratio:
            return True
        return parent is not None and parent.is_sampled and self._has_left()

    def _has_left(self) -> bool:
        if not self._per_s:
            return False
        now = self._clock()
        self._left = min(self._most, self._left + (now - self._filled_at) * self._per_s)
        self._filled_at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


# Some two kilobytes each.
MOST_WAITING = 4096
TOGETHER = 512
EVERY_S = 1.0
LOG_AGAIN_S = 60.0
logger = logging.getLogger("pith.tracing")


class SpanCounts(Protocol):
    """Is told what became of spans."""

    def exported(self, count: int) -> None: ...

    def dropped(self, count: int) -> None:
        """There was no room for them, or the collector did not take them."""


class Exporting(SpanProcessor):
    """Spans wait for the thread, `most_waiting` of them; those that come beyond that are dropped. The SDK's own batch
    processor counts neither these nor those that the collector does not take, and its end waits half a minute."""

    def __init__(
        self, exporter: SpanExporter, counts: SpanCounts, *, most_waiting: int = MOST_WAITING
    ) -> None:
        self._exporter = exporter
        self._counts = counts
        self._most_waiting = most_waiting
        self._waiting: deque[ReadableSpan] = deque()
        self._is_stopping = threading.Event()
        self._said_at = -LOG_AGAIN_S
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def on_start(self, span: trace.Span, parent_context: Context | None = None) -> None: ...

    def on_end(self, span: ReadableSpan) -> None:
        if len(self._waiting) >= self._most_waiting or self._is_stopping.is_set():
            self._counts.dropped(1)
        else:
            self._waiting.append(span)

    def shutdown(self) -> None:
        self.stop(0)

    def stop(self, within_s: float) -> None:
        """Export what waits, for at most that long, and give up the rest. To be called from another thread."""
        self._is_stopping.set()
        self._thread.join(within_s)
        # Ends what it waits for: the pause before another attempt.
        self._exporter.shutdown()
        if self._waiting:
            self._counts.dropped(len(self._waiting))

    def _run(self) -> None:
        while not self._is_stopping.wait(EVERY_S):
            self._export_all()
        self._export_all()

    def _export_all(self) -> None:
        while self._waiting:
            spans = [self._waiting.popleft() for _ in range(min(TOGETHER, len(self._waiting)))]
            if self._is_taken(spans):
                self._counts.exported(len(spans))
            else:
                self._counts.dropped(len(spans))

    def _is_taken(self, spans: Sequence[ReadableSpan]) -> bool:
        reason = "the collector does not take them"
        try:
            if self._exporter.export(spans) is SpanExportResult.SUCCESS:
                return True
        except Exception as error:
            # A thread that ends would drop all that follows.
            reason = type(error).__name__
        if monotonic() - self._said_at >= LOG_AGAIN_S:
            self._said_at = monotonic()
            logger.warning("%d spans are lost: %s", len(spans), reason)
        return False


_KINDS = {"internal": trace.SpanKind.INTERNAL, "client": trace.SpanKind.CLIENT}
_PROPAGATOR = TraceContextTextMapPropagator()
MOST_ATTRIBUTES = 64
LONGEST_ATTRIBUTE = 256


class OtlpTracer(Tracer):
    """Begins traces towards one collector."""

    def __init__(self, sampling: Sampling, exporter: SpanExporter, counts: SpanCounts) -> None:
        self._sampling = sampling
        self._exporting = Exporting(exporter, counts)
        # What is not sampled is never begun, so that all that is begun is.
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=Resource({"service.name": "pith", "process.pid": os.getpid()}),
            span_limits=SpanLimits(
                max_span_attributes=MOST_ATTRIBUTES,
                max_attribute_length=LONGEST_ATTRIBUTE,
            ),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(self._exporting)
        self._tracer = self._provider.get_tracer("pith")

    def request(self, name: str, parent: RemoteParent | None) -> Span:
        if not self._sampling.takes(parent):
            return NO_SPAN
        return OtlpSpan(
            self._tracer, self._tracer.start_span(name, _context_of(parent), trace.SpanKind.SERVER)
        )

    def root(self, name: str) -> Span:
        if not self._sampling.takes(None):
            return NO_SPAN
        return OtlpSpan(self._tracer, self._tracer.start_span(name, Context()))

    def stop(self, within_s: float) -> None:
        """Send what waits, for at most that long; it blocks."""
        self._exporting.stop(within_s)


class OtlpSpan(Span):
    """A step that is recorded."""

    def __init__(self, tracer: trace.Tracer, span: trace.Span) -> None:
        self._tracer = tracer
        self._span = span

    @property
    def trace_id(self) -> str | None:
        return trace.format_trace_id(self._span.get_span_context().trace_id)

    def set(self, name: str, value: Value | None) -> None:
        if value is not None and self._span.is_recording():
            self._span.set_attribute(name, value)

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def fail(self, kind: str) -> None:
        if not self._span.is_recording():
            return
        self._span.set_attribute("error.type", kind)
        self._span.set_status(Status(StatusCode.ERROR, kind))

    def child(self, name: str, kind: SpanKind = "internal") -> Span:
        context = trace.set_span_in_context(self._span, Context())
        return OtlpSpan(self._tracer, self._tracer.start_span(name, context, _KINDS[kind]))

    def headers(self) -> Mapping[str, str]:
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, trace.set_span_in_context(self._span, Context()))
        return carrier

    def end(self) -> None:
        if self._span.is_recording():
            self._span.end()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            # Its message may say what a caller sent. A client that leaves is no failure of what it was waiting for.
            self.fail(kind.__name__) if issubclass(kind, Exception) else self.set("pith.cancelled", True)
        self.end()


def _context_of(parent: RemoteParent | None) -> Context:
    if parent is None:
        return Context()
    # That it was sampled was decided here, whatever its caller's flag says.
    carrier = {"traceparent": f"00-{parent.trace_id}-{parent.span_id}-01", "tracestate": parent.state}
    return _PROPAGATOR.extract(carrier, Context())


def exporter_of(settings: TracingSettings) -> SpanExporter:
    """The exporter that speaks to the collector; a batch that is not taken within `EXPORT_S` is given up. Raises
    `BadHeaders`."""
    headers = settings.headers()
    # They would say the same of every batch; `Exporting` says it once a minute.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    if settings.protocol == "http":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter

        return HttpExporter(settings.traces_url, headers=headers, timeout=EXPORT_S)
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

    return GrpcExporter(
        settings.traces_url,
        insecure=not settings.traces_url.startswith("https://"),
        headers=tuple(headers.items()),
        timeout=EXPORT_S,
    )
