"""What a compression model's replica counts of its worker processes."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from compression.workers.observer import REASONS, Replaced


class PoolMetrics:
    """The `PoolObserver` of one model. `registry` is read in tests only, as that of `ServiceMetrics`."""

    def __init__(self, registry: CollectorRegistry, model_id: str) -> None:
        def gauge(name: str, text: str) -> Gauge:
            family = Gauge(name, text, ["model"], registry=registry, multiprocess_mode="livesum")
            return family.labels(model_id)

        replaced = Counter(
            "pith_compress_workers_replaced",
            "Worker processes that were replaced, by the reason.",
            ["model", "reason"],
            registry=registry,
        )
        deadlines = Counter(
            "pith_compress_deadlines_passed",
            "Compressions that were not done in time.",
            ["model"],
            registry=registry,
        )
        self._waiting = gauge("pith_compress_jobs_waiting", "Compressions that wait for a process.")
        self._running = gauge("pith_compress_jobs_running", "Compressions that processes work on.")
        self._replaced = {reason: replaced.labels(model_id, reason) for reason in REASONS}
        self._deadlines = deadlines.labels(model_id)

    def jobs(self, *, waiting: int, running: int) -> None:
        self._waiting.set(waiting)
        self._running.set(running)

    def replaced(self, reason: Replaced) -> None:
        self._replaced[reason].inc()

    def deadline_passed(self) -> None:
        self._deadlines.inc()
