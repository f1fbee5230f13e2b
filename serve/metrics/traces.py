"""What is counted of spans: those that the collector took, and those that were lost."""

from prometheus_client import CollectorRegistry, Counter


class TraceMetrics:
    """The `serve.tracing.export.SpanCounts` of an HTTP process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._exported = Counter(
            "pith_trace_spans_exported", "Spans that the collector took.", registry=registry
        )
        self._dropped = Counter(
            "pith_trace_spans_dropped",
            "Spans that were lost: the collector is slow or away.",
            registry=registry,
        )

    def exported(self, count: int) -> None:
        self._exported.inc(count)

    def dropped(self, count: int) -> None:
        self._dropped.inc(count)
