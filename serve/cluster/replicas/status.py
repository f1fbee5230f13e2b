"""Whether an application has a running replica, as Ray's controller last saw it, without starting one."""

import asyncio
import time

from ray import serve
from ray.serve.schema import ReplicaState

STATUS_TTL_S = 1.0


class ReplicaStatus:
    """Asks the controller at most once a second."""

    def __init__(self, application: str) -> None:
        self._application = application
        self._seen = (float("-inf"), False)

    async def is_running(self) -> bool:
        asked_at, running = self._seen
        if time.monotonic() - asked_at >= STATUS_TTL_S:
            running = await asyncio.to_thread(self._has_running_replica)
            self._seen = (time.monotonic(), running)
        return running

    def _has_running_replica(self) -> bool:
        application = serve.status().applications.get(self._application)
        if application is None:
            return False
        return any(
            deployment.replica_states.get(ReplicaState.RUNNING, 0) > 0
            for deployment in application.deployments.values()
        )
