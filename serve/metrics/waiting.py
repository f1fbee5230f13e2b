"""How many chat requests wait for a place at their model's replicas, or for one of them to start, and how long."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from prometheus_client import CollectorRegistry, Gauge, Histogram

from serve.metrics.histograms.buckets import SECONDS

# Counts one request for as long as the block lasts.
Waits = Callable[[], AbstractContextManager[object]]


class WaitingMetrics:
    """`registry` is read in tests only, as that of `ServiceMetrics`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._family = Gauge(
            "pith_chat_requests_waiting",
            "Chat requests that wait for a replica.",
            ["model"],
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._seconds = Histogram(
            "pith_chat_queue_seconds",
            "Chat requests that had to wait for a replica: how long.",
            ["model"],
            registry=registry,
            buckets=SECONDS,
        )

    def of(self, model_id: str) -> Waits:
        waiting, seconds = self._family.labels(model_id), self._seconds.labels(model_id)

        @contextmanager
        def waits() -> Iterator[None]:
            with waiting.track_inprogress(), seconds.time():
                yield

        return waits
