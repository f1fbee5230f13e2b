"""Opens what traces requests, or nothing: only here is it decided whether OpenTelemetry is imported."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from serve.tracing.destination import STOP_S, TracingTerms
from serve.tracing.spans import NO_TRACER, Tracer

if TYPE_CHECKING:
    from serve.tracing.export import SpanCounts


class Tracing:
    """A tracer, and the end of it."""

    def __init__(self, terms: TracingTerms | None, counts: SpanCounts) -> None:
        """Raises `BadHeaders`."""
        self.tracer: Tracer = NO_TRACER
        self._stop = None
        if terms is not None:
            from serve.tracing.otlp import OtlpTracer, exporter_of
            from serve.tracing.sampling import Sampling

            sampling = Sampling(terms.sample_ratio, terms.callers_per_s)
            opened = OtlpTracer(sampling, exporter_of(terms, terms.headers()), counts)
            self.tracer, self._stop = opened, opened.stop

    async def close(self) -> None:
        """Send what waits, for a second at most."""
        if self._stop is not None:
            await asyncio.to_thread(self._stop, STOP_S)
