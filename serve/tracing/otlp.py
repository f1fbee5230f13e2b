"""Spans by OpenTelemetry's SDK, sent by OTLP. Nothing global is set: other libraries trace nothing by it."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from types import TracebackType

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.trace.span import TraceState

from serve.tracing.destination import EXPORT_S, TracingTerms
from serve.tracing.export import Exporting, SpanCounts
from serve.tracing.sampling import Sampling
from serve.tracing.spans import NO_SPAN, Span, SpanKind, Value
from serve.tracing.traceparent import RemoteParent

_KINDS = {"internal": trace.SpanKind.INTERNAL, "client": trace.SpanKind.CLIENT}
_PROPAGATOR = TraceContextTextMapPropagator()
MOST_ATTRIBUTES = 64
LONGEST_ATTRIBUTE = 256


class OtlpTracer:
    """`serve.tracing.spans.Tracer` towards one collector."""

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
        context = _context_of(parent) if parent is not None else Context()
        return OtlpSpan(self._tracer, self._tracer.start_span(name, context, trace.SpanKind.SERVER))

    def root(self, name: str) -> Span:
        if not self._sampling.takes(None):
            return NO_SPAN
        return OtlpSpan(self._tracer, self._tracer.start_span(name, Context()))

    def stop(self, within_s: float) -> None:
        """Send what waits, for at most that long; it blocks."""
        self._exporting.stop(within_s)


class OtlpSpan:
    """`serve.tracing.spans.Span` that is recorded."""

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

    def __enter__(self) -> Span:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            # Its message may say what a caller sent. A client that leaves is no failure of what it was waiting for.
            self.fail(kind.__name__) if issubclass(kind, Exception) else self.set("pith.cancelled", True)
        self.end()


def _context_of(parent: RemoteParent) -> Context:
    given = SpanContext(
        int(parent.trace_id, 16),
        int(parent.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
        trace_state=TraceState.from_header([parent.state]) if parent.state else TraceState(),
    )
    return trace.set_span_in_context(trace.NonRecordingSpan(given), Context())


def exporter_of(terms: TracingTerms, headers: Mapping[str, str]) -> SpanExporter:
    """What speaks to the collector; a batch that is not taken within `EXPORT_S` is given up."""
    # They would say the same of every batch; `Exporting` says it once a minute.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    if terms.protocol == "http":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter

        return HttpExporter(terms.traces_url, headers=dict(headers), timeout=EXPORT_S)
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

    return GrpcExporter(
        terms.endpoint,
        insecure=not terms.endpoint.startswith("https://"),
        headers=tuple(headers.items()),
        timeout=EXPORT_S,
    )
