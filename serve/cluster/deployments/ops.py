"""The ops port on a cluster: collectors of `/metrics`, and its deployment where Ray Serve deploys pith from a file."""

import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from serve.cluster.ray_insides.ray_serve import application_statuses
from serve.cluster.replicas.applications import (
    HEALTH_CHECK_PERIOD_S,
    HEALTH_CHECK_TIMEOUT_S,
    OPS_APP,
    models_of,
)
from serve.cluster.replicas.status import models_away, word_of
from serve.config.chat_models import broken_adapters
from serve.config.settings import Settings
from serve.logs.outlet import begin_logs
from serve.metrics.counts import ENGINES, metrics_folder
from serve.metrics.families import collected_gauge
from serve.metrics.ledger_metrics import LedgerMetrics
from serve.metrics.machine import BuildInfo, ServerProcesses, StateFolder
from serve.metrics.ops_port import CountedFiles

# Longer than Ray's controller takes for an answer; then what it said before is shown.
PATIENCE_S = 2.0
RUNNING, LEAVING = "RUNNING", "STOPPING"
LONGEST_LABEL = 300
Counts = Mapping[str, tuple[int, int]]
logger = logging.getLogger("pith.metrics")
TAKE_IN_S = 2.0


class ReplicaCounts(Collector):
    """Asks Ray's controller at each scrape, which never waits for it for long: a server that hangs is to be seen."""

    def __init__(self, in_force: Callable[[], Settings]) -> None:
        self._in_force = in_force
        self._counts: Counts = {}
        self._away: Mapping[str, str] = {}
        self._asking: threading.Thread | None = None

    def collect(self) -> Iterable[Metric]:
        if self._asking is None or not self._asking.is_alive():
            self._asking = threading.Thread(target=self._ask, daemon=True)
            self._asking.start()
        self._asking.join(PATIENCE_S)
        return replica_gauges(self._counts, self._away)

    def _ask(self) -> None:
        ray = sys.modules.get("ray")
        if ray is None or not ray.is_initialized():
            return
        try:
            applications = application_statuses()
            self._counts = counts_of(applications)
            self._away = models_away(applications) | broken_adapters(self._in_force().models)
        except Exception as error:
            # While it starts or stops, Ray raises all kinds; a metric that fails takes no other with it.
            logger.warning("the counts of replicas are those of the last scrape: %s", error)


def replica_gauges(counts: Counts, away: Mapping[str, str]) -> list[Metric]:
    gone = collected_gauge("pith_model_away")
    for model, reason in away.items():
        gone.add_metric([model, reason[:LONGEST_LABEL]], 1)
    running, wanted = collected_gauge("pith_replicas_running"), collected_gauge("pith_replicas_wanted")
    for model, (is_up, is_to_be) in counts.items():
        running.add_metric([model], is_up)
        wanted.add_metric([model], is_to_be)
    return [running, wanted, gone]


def counts_of(applications: Mapping[str, Any]) -> Counts:
    """Running and wanted by model, of what is deployed: for a while a model may have two applications."""
    found: dict[str, tuple[int, int]] = {}
    for name, application in applications.items():
        states = [deployment.replica_states for deployment in application.deployments.values()]
        by_state = [(word_of(state), n) for each in states for state, n in each.items()]
        running = sum(n for state, n in by_state if state == RUNNING)
        wanted = sum(n for state, n in by_state if state != LEAVING)
        for model in models_of(name):
            others = found.get(model, (0, 0))
            found[model] = others[0] + running, others[1] + wanted
    return found


def collectors_of(settings: Settings, in_force: Callable[[], Settings]) -> Iterator[Collector]:
    """None where metrics are off. `in_force` gives the settings as a reload has left them."""
    folder = metrics_folder(settings)
    if folder is None:
        return
    yield ReplicaCounts(in_force)
    yield CountedFiles(folder / ENGINES, keeps_ended=False)
    yield ServerProcesses(folder)
    yield StateFolder(settings.state_dir)
    yield BuildInfo()
    tenants = settings.metrics.tenants
    yield LedgerMetrics(settings.billing.database_url, tenants=tenants.top if tenants else 0)


class OpsReplica:
    """`/metrics` and the admin API of one node; what the processes of other nodes count is in their nodes' folders."""

    def __init__(self, settings: Settings) -> None:
        begin_logs(settings.logs.plan(None))
        from serve.metrics.ops_port import ops_port
        from serve.ops.app import open_ops

        self._ended = threading.Event()
        self._until = ExitStack()
        # Processes of the node may have begun to count, and do not begin anew when this one does.
        take_in = self._until.enter_context(
            ops_port(settings, open_ops, *collectors_of(settings, lambda: settings), anew=False)
        )
        self._until.callback(self._ended.set)
        threading.Thread(target=self._take_in, args=[take_in], daemon=True).start()

    def _take_in(self, take_in_ended: Any) -> None:
        while not self._ended.wait(TAKE_IN_S):
            take_in_ended()

    def __del__(self) -> None:
        self._until.close()


def build_ops(settings: Settings) -> Any:
    """The Ray Serve application of the ops port: one replica, and on no node two."""
    from ray import serve

    deployment = serve.deployment(
        OpsReplica,
        name=OPS_APP,
        num_replicas=1,
        max_replicas_per_node=1,
        health_check_period_s=HEALTH_CHECK_PERIOD_S,
        health_check_timeout_s=HEALTH_CHECK_TIMEOUT_S,
        # Some, so that it is on no node that takes no replicas.
        ray_actor_options={"num_cpus": 0.01},
    )
    return deployment.bind(settings)
