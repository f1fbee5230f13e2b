"""Metrics of queues, and of work that no request waits for: upkeep, webhooks, retained originals, exported spans."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Literal, get_args

from prometheus_client import CollectorRegistry

from billing.ledger.recording import log_written_off
from billing.usage import UsageEvent
from billing.webhooks.endpoint import RESULTS, Result
from compression.workers.lanes import REASONS, Replaced
from serve.metrics.families import NANO_PER_USD, Families

TASKS = (
    "replay",
    "leases",
    "collecting",
    "originals",
    "files",
    "batch_jobs",
    "batches",
    "limits",
    "webhooks",
    "old_webhooks",
    "months",
    "key_uses",
)
DELETED = ("expired", "unfinished", "revoked")


class UpkeepMetrics:
    """All series are there from the start, at 0."""

    def __init__(self, registry: CollectorRegistry) -> None:
        families = Families(registry)
        failing = families.gauge("pith_background_failing_seconds")
        self._failing = {task: failing.labels(task) for task in TASKS}
        self._failures = families.counters("pith_background_failures", last=TASKS)
        self._written_off = families.counter("pith_written_off_usd")
        self._deleted = families.counters("pith_originals_deleted", last=DELETED)
        for gauge in self._failing.values():
            gauge.set(0)

    def observe(self, task: str, failing_s: float) -> None:
        self._failing[task].set(failing_s)
        if failing_s:
            self._failures[task].inc()

    def write_off(self, event: UsageEvent, nano_usd: int) -> None:
        log_written_off(event, nano_usd)
        self._written_off.inc(nano_usd / NANO_PER_USD)

    def delete_originals(self, reason: str, number: int) -> None:
        self._deleted[reason].inc(number)


class WebhookMetrics:
    """All series are there from the start, at 0."""

    def __init__(self, registry: CollectorRegistry) -> None:
        families = Families(registry)
        self._tries = families.counters("pith_webhook_deliveries", last=RESULTS)
        self._waiting = families.gauge("pith_webhook_deliveries_waiting")
        self._waiting.set(0)

    def count(self, result: Result) -> None:
        self._tries[result].inc()

    def show_waiting(self, number: int) -> None:
        self._waiting.set(number)


class TraceMetrics:
    """The `serve.tracing.otlp.SpanCounts` of an HTTP process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        families = Families(registry)
        self._exported = families.counter("pith_trace_spans_exported")
        self._dropped = families.counter("pith_trace_spans_dropped")

    def exported(self, count: int) -> None:
        self._exported.inc(count)

    def dropped(self, count: int) -> None:
        self._dropped.inc(count)


KeepOutcome = Literal["kept", "extended", "full", "failed"]
ReadOutcome = Literal["served", "unknown"]


class OriginalMetrics:
    """All series are there from the start, at 0."""

    def __init__(self, registry: CollectorRegistry) -> None:
        families = Families(registry)
        self._kept = families.counters("pith_originals_kept", last=get_args(KeepOutcome))
        self._reads = families.counters("pith_originals_read", last=get_args(ReadOutcome))

    def keep(self, *, kept: int, known: int, full: int, failed: int) -> None:
        """`known` were there already; for `full` the project had no room."""
        counts = {"kept": kept, "extended": known, "full": full, "failed": failed}
        for outcome, count in counts.items():
            self._kept[outcome].inc(count)

    def read(self, outcome: ReadOutcome) -> None:
        self._reads[outcome].inc()


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
