"""Hands spans to a collector in a thread: a request never waits for it, and a stop waits no longer than it says."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from time import monotonic
from typing import Protocol

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

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
    """Spans wait for the thread, `most_waiting` of them; those that come beyond that are dropped."""

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

    def on_start(self, span: Span, parent_context: Context | None = None) -> None: ...

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
