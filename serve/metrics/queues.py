"""Metrics of queues: chats that wait for a replica, compressions that wait for a worker process."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from prometheus_client import CollectorRegistry

from compression.workers.plan import REASONS, Replaced
from serve.metrics.families import Families

# Counts one request for as long as the block lasts.
Waits = Callable[[], AbstractContextManager[object]]


class WaitingMetrics:
    """`registry` is read in tests only, as that of `ServiceMetrics`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        families = Families(registry)
        self._family = families.gauge("pith_chat_requests_waiting")
        self._seconds = families.histogram("pith_chat_queue_seconds")

    def of(self, model_id: str) -> Waits:
        waiting, seconds = self._family.labels(model_id), self._seconds.labels(model_id)

        @contextmanager
        def waits() -> Iterator[None]:
            with waiting.track_inprogress(), seconds.time():
                yield

        return waits


class PoolMetrics:
    """The `PoolObserver` of one model. `registry` is read in tests only, as that of `ServiceMetrics`."""

    def __init__(self, registry: CollectorRegistry, model_id: str) -> None:
        families = Families(registry)
        self._waiting = families.gauge("pith_compress_jobs_waiting").labels(model_id)
        self._running = families.gauge("pith_compress_jobs_running").labels(model_id)
        self._replaced = families.counters("pith_compress_workers_replaced", model_id, last=REASONS)
        self._deadlines = families.counter("pith_compress_deadlines_passed").labels(model_id)

    def jobs(self, *, waiting: int, running: int) -> None:
        self._waiting.set(waiting)
        self._running.set(running)

    def replaced(self, reason: Replaced) -> None:
        self._replaced[reason].inc()

    def deadline_passed(self) -> None:
        self._deadlines.inc()
