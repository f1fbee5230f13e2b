"""What a server's background work shows of itself, and what it wrote off and deleted."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from billing.ledger.replay import log_written_off
from billing.usage import UsageEvent
from serve.metrics.money import NANO_PER_USD

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
        failing = Gauge(
            "pith_background_failing_seconds",
            "For how long a background task has been failing, added up over the HTTP processes; 0: it works.",
            ["task"],
            registry=registry,
            multiprocess_mode="livesum",
        )
        failures = Counter(
            "pith_background_failures", "Rounds of background tasks that failed.", ["task"], registry=registry
        )
        self._failing = {task: failing.labels(task) for task in TASKS}
        self._failures = {task: failures.labels(task) for task in TASKS}
        self._written_off = Counter(
            "pith_written_off_usd",
            "US dollars of usage written off: beyond its hold and its workspace's limits.",
            registry=registry,
        )
        deleted = Counter(
            "pith_originals_deleted",
            "Retained originals that were deleted, by reason.",
            ["reason"],
            registry=registry,
        )
        self._deleted = {reason: deleted.labels(reason) for reason in DELETED}
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
