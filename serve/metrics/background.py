"""Metrics of queues, and of work that no request waits for: upkeep, webhooks, retained originals, exported spans."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from time import perf_counter
from typing import Literal, get_args

from billing.ledger.recording import log_written_off
from billing.preservation.checks import PreservationCheck
from billing.usage import UsageEvent
from billing.webhooks.endpoint import RESULTS, Result
from compression.workers.lanes import REASONS, Replaced
from serve.metrics.counts import Counts, Families
from serve.metrics.families import NANO_PER_USD

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
    "budgets",
    "log",
    "witness",
    "key_uses",
    "preservation",
    "whole_chats",
)
DELETED = ("expired", "unfinished", "revoked")


class UpkeepMetrics:
    """All series are there from the start, at 0."""

    def __init__(self, counts: Counts) -> None:
        families = Families(counts)
        self._failing = {task: families.gauge("pith_background_failing_seconds", task) for task in TASKS}
        self._failures = families.counters("pith_background_failures", last=TASKS)
        self._written_off = families.counter("pith_written_off_usd")
        self._tasks = families.gauge("pith_event_loop_tasks")
        self._deleted = families.counters("pith_originals_deleted", last=DELETED)

    def observe(self, task: str, failing_s: float) -> None:
        """Called in the event loop, after each round."""
        self._tasks.set(len(asyncio.all_tasks()))
        self._failing[task].set(failing_s)
        if failing_s:
            self._failures[task].inc()

    def write_off(self, event: UsageEvent, nano_usd: int) -> None:
        log_written_off(event, nano_usd)
        self._written_off.inc(nano_usd / NANO_PER_USD)

    def delete_originals(self, reason: str, number: int) -> None:
        self._deleted[reason].inc(number)


# Why a reply that was sampled was not scored again.
NotScored = Literal[
    "several_choices",
    "no_reply",
    "queue_full",
    "late",
    "too_long",
    "prompt_differs",
    "refused",
    "unavailable",
    "not_recorded",
    "stopped",
    "failed",
]


class _PreservationSeries:
    def __init__(self, families: Families, model_id: str) -> None:
        ends = ("scored", *get_args(NotScored))
        self.ends = families.counters("pith_preservation_checks", model_id, last=ends)
        self.nats = families.histogram("pith_preservation_nats_per_token", model_id)
        self.agreement = families.histogram("pith_preservation_agreement", model_id)
        self.seconds = families.counter("pith_preservation_engine_seconds", model_id)


class PreservationMetrics:
    """Checks of compressed chats by chat model; all series are there from the start, at 0."""

    def __init__(self, counts: Counts, model_ids: Iterable[str]) -> None:
        families = Families(counts)
        self._models = {model_id: _PreservationSeries(families, model_id) for model_id in model_ids}

    def drop(self, model_id: str, reason: NotScored) -> None:
        self._models[model_id].ends[reason].inc()

    def score(self, check: PreservationCheck, engine_s: float) -> None:
        model = self._models[check.model_id]
        model.ends["scored"].inc()
        # A histogram's sum cannot fall, and what is likelier after the whole prompt is no loss.
        model.nats.observe(max(0.0, check.nats_per_token))
        model.agreement.observe(check.agreement)
        model.seconds.inc(engine_s)


class WebhookMetrics:
    """All series are there from the start, at 0."""

    def __init__(self, counts: Counts) -> None:
        families = Families(counts)
        self._tries = families.counters("pith_webhook_deliveries", last=RESULTS)
        self._waiting = families.gauge("pith_webhook_deliveries_waiting")

    def count(self, result: Result) -> None:
        self._tries[result].inc()

    def show_waiting(self, number: int) -> None:
        self._waiting.set(number)


class TraceMetrics:
    """The `serve.tracing.otlp.SpanCounts` of an HTTP process."""

    def __init__(self, counts: Counts) -> None:
        families = Families(counts)
        self._exported = families.counter("pith_trace_spans_exported")
        self._dropped = families.counter("pith_trace_spans_dropped")
        # The thread that exports drops spans too.
        self._lock = Lock()

    def exported(self, count: int) -> None:
        self._exported.inc(count)

    def dropped(self, count: int) -> None:
        with self._lock:
            self._dropped.inc(count)


KeepOutcome = Literal["kept", "extended", "full", "failed"]
ReadOutcome = Literal["served", "unknown"]


class OriginalMetrics:
    """All series are there from the start, at 0."""

    def __init__(self, counts: Counts) -> None:
        families = Families(counts)
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
    """Chat requests that wait for a replica."""

    def __init__(self, counts: Counts) -> None:
        self._families = Families(counts)

    def of(self, model_id: str) -> Waits:
        waiting = self._families.gauge("pith_chat_requests_waiting", model_id)
        seconds = self._families.histogram("pith_chat_queue_seconds", model_id)

        @contextmanager
        def waits() -> Iterator[None]:
            began = perf_counter()
            waiting.inc()
            try:
                yield
            finally:
                waiting.dec()
                seconds.observe(perf_counter() - began)

        return waits


class PoolMetrics:
    """The `PoolObserver` of one model."""

    def __init__(self, counts: Counts, model_id: str) -> None:
        families = Families(counts)
        self._waiting = families.gauge("pith_compress_jobs_waiting", model_id)
        self._running = families.gauge("pith_compress_jobs_running", model_id)
        self._replaced = families.counters("pith_compress_workers_replaced", model_id, last=REASONS)
        self._deadlines = families.counter("pith_compress_deadlines_passed", model_id)

    def jobs(self, *, waiting: int, running: int) -> None:
        self._waiting.set(waiting)
        self._running.set(running)

    def replaced(self, reason: Replaced) -> None:
        self._replaced[reason].inc()

    def deadline_passed(self) -> None:
        self._deadlines.inc()
