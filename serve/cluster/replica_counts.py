"""How many replicas each model has and how many it should have, for those who read `/metrics`."""

import logging
import sys
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from serve.cluster.replicas.applications import model_of

# Longer than Ray's controller takes for an answer; then what it said before is shown.
PATIENCE_S = 2.0
RUNNING, LEAVING = "RUNNING", "STOPPING"
Counts = Mapping[str, tuple[int, int]]
logger = logging.getLogger("pith.metrics")


class ReplicaCounts(Collector):
    """Asks Ray's controller at each scrape, which never waits for it for long: a server that hangs is to be seen."""

    def __init__(self) -> None:
        self._counts: Counts = {}
        self._asking: threading.Thread | None = None

    def collect(self) -> Iterable[Metric]:
        if self._asking is None or not self._asking.is_alive():
            self._asking = threading.Thread(target=self._ask, daemon=True)
            self._asking.start()
        self._asking.join(PATIENCE_S)
        return replica_gauges(self._counts)

    def _ask(self) -> None:
        ray = sys.modules.get("ray")
        if ray is None or not ray.is_initialized():
            return
        from ray import serve

        try:
            self._counts = counts_of(serve.status().applications)
        except Exception as error:
            # While it starts or stops, Ray raises all kinds; a metric that fails takes no other with it.
            logger.warning("the counts of replicas are those of the last scrape: %s", error)


def replica_gauges(counts: Counts) -> list[Metric]:
    running = GaugeMetricFamily("pith_replicas_running", "Replicas that take requests.", labels=["model"])
    wanted = GaugeMetricFamily(
        "pith_replicas_wanted", "Replicas that run or are being started.", labels=["model"]
    )
    for model, (is_up, is_to_be) in counts.items():
        running.add_metric([model], is_up)
        wanted.add_metric([model], is_to_be)
    return [running, wanted]


def counts_of(applications: Mapping[str, Any]) -> Counts:
    """Running and wanted by model, of what is deployed: for a while a model may have two applications."""
    found: dict[str, tuple[int, int]] = {}
    for name, application in applications.items():
        model = model_of(name)
        if model is None:
            continue
        states = [deployment.replica_states for deployment in application.deployments.values()]
        by_state = [(str(getattr(state, "value", state)), n) for each in states for state, n in each.items()]
        running = sum(n for state, n in by_state if state == RUNNING)
        wanted = sum(n for state, n in by_state if state != LEAVING)
        others = found.get(model, (0, 0))
        found[model] = others[0] + running, others[1] + wanted
    return found
