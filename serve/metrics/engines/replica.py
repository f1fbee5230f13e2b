"""What a chat model's replica counts itself, whatever its engine: requests that wait for their turn, and restarts."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from serve.metrics.engines.families import Families
from serve.metrics.engines.series_file import SeriesFile
from serve.metrics.histograms.buckets import SECONDS
from serve.processes.roll import enrol

ENGINES = "engines"
CHAT_REPLICA = "replica"
logger = logging.getLogger("pith.metrics")


class ReplicaMetrics:
    """`families` is for the engine's own."""

    def __init__(self, families: Families) -> None:
        self.families = families
        self._waiting = families.gauge(
            "pith_replica_requests_waiting",
            "Requests that wait for places on the engine, until their project's turn.",
        ).labels()
        self._running = families.gauge(
            "pith_replica_requests_running", "Requests that the engine was given."
        ).labels()
        self._queue = families.histogram(
            "pith_replica_queue_seconds", "Requests: from the replica's door to their turn.", buckets=SECONDS
        ).labels()
        self._restarts = families.counter(
            "pith_engine_restarts", "Engines that died and were started again in their replica."
        ).labels()

    def wait(self) -> None:
        self._waiting.inc()

    def give_up(self) -> None:
        """It waits no longer, and was not begun."""
        self._waiting.dec()

    def begin(self, waited_s: float) -> None:
        self._waiting.dec()
        self._running.inc()
        self._queue.observe(waited_s)

    def end(self) -> None:
        self._running.dec()

    def restart(self) -> None:
        self._restarts.inc()


def open_replica_metrics(folder: Path | None, model_id: str) -> ReplicaMetrics | None:
    """Of this process, in the server's `folder` of metrics; None without one, or where nothing can be written."""
    if folder is None:
        return None
    try:
        number = enrol(folder, CHAT_REPLICA, os.getpid(), model=model_id).number
        file = SeriesFile(folder / ENGINES, os.getpid(), {"model": model_id, "replica": str(number)})
    except OSError as error:
        logger.error("this replica's metrics are not shown: no files for them in %s: %s", folder, error)
        return None
    return ReplicaMetrics(Families(file))
