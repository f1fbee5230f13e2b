"""The deployment of the ops port, for servers that Ray Serve deploys from a file: `pith serve` opens it itself."""

import threading
from contextlib import ExitStack
from typing import Any

from ray import serve

from serve.cluster.replicas.applications import HEALTH_CHECK_PERIOD_S, HEALTH_CHECK_TIMEOUT_S, OPS_APP
from serve.config.settings import Settings
from serve.logs.outlet import begin_logs

TAKE_IN_S = 2.0


class OpsReplica:
    """`/metrics` and the admin API of one node; what the processes of other nodes count is in their nodes' folders."""

    def __init__(self, settings: Settings) -> None:
        begin_logs(settings.logs.plan(None))
        from serve.cluster.collectors import collectors_of
        from serve.metrics.ops_port import ops_port
        from serve.ops.app import open_ops

        self._ended = threading.Event()
        self._until = ExitStack()
        # Processes of the node may have begun to count, and do not begin anew when this one does.
        take_in = self._until.enter_context(
            ops_port(settings, open_ops, *collectors_of(settings), anew=False)
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
