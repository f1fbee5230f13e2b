"""An engine behind a Ray Serve handle: Ray picks the replica, starts one where none is up, and reports its death."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator

from ray import serve
from ray.exceptions import RayError, TaskCancelledError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RayServeException
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import ReplicaState

from models.engine import EngineChunk, EngineFault, EngineRequest
from models.errors import EngineFailed, EngineUnavailable
from serve.deployments import model_app

STATUS_TTL_S = 1.0


class RayEngine:
    """The `models.engine.Engine` of one catalog model."""

    def __init__(
        self,
        model_id: str,
        handle: DeploymentHandle,
        *,
        start_wait_s: float,
        stall_s: float,
        progress_s: float,
        retry_after_s: int,
    ) -> None:
        self._model_id = model_id
        self._handle = handle.options(stream=True, method_name="generate")
        self._start_wait_s = start_wait_s
        self._stall_s = stall_s
        self._progress_s = progress_s
        self._retry_after_s = retry_after_s
        self._ready = (float("-inf"), False)

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        """Yield the replica's chunks. A replica sends a sign of life at least every half second."""
        response = self._handle.remote(request)
        wait_s, taken = self._start_wait_s, False
        tokens, progress_at = 0, time.monotonic()
        try:
            while True:
                async with asyncio.timeout(wait_s):
                    item = await anext(response, None)
                if item is None:
                    raise EngineFailed(f"{self._model_id}: the reply broke off")
                if isinstance(item, EngineFault):
                    raise item.error()
                yield item
                if item.finished:
                    return
                if not taken or item.usage.completion_tokens > tokens:
                    tokens, progress_at = item.usage.completion_tokens, time.monotonic()
                elif time.monotonic() - progress_at > self._progress_s:
                    raise EngineFailed(
                        f"{self._model_id}: no token from the engine for {self._progress_s:g} s"
                    )
                wait_s, taken = self._stall_s, True
        except TimeoutError:
            raise self._silence(taken, wait_s) from None
        except (BackPressureError, DeploymentUnavailableError) as error:
            raise EngineUnavailable(
                f"{self._model_id}: no replica can take the request", retry_after_s=self._retry_after_s
            ) from error
        except (TaskCancelledError, RayError, RayServeException) as error:
            raise EngineFailed(
                f"{self._model_id}: the engine died while it worked on this request"
            ) from error
        finally:
            response.cancel()

    def _silence(self, taken: bool, waited_s: float) -> EngineFailed | EngineUnavailable:
        if taken:
            return EngineFailed(f"{self._model_id}: no sign of life from the engine for {waited_s:g} s")
        return EngineUnavailable(
            f"{self._model_id}: no replica took the request within {waited_s:g} s; it may still be starting",
            retry_after_s=self._retry_after_s,
        )

    async def ready(self) -> bool:
        """Whether a replica is running, as Ray's controller last saw it; asked at most once a second."""
        asked_at, ready = self._ready
        if time.monotonic() - asked_at >= STATUS_TTL_S:
            ready = await asyncio.to_thread(self._has_running_replica)
            self._ready = (time.monotonic(), ready)
        return ready

    def _has_running_replica(self) -> bool:
        application = serve.status().applications.get(model_app(self._model_id))
        if application is None:
            return False
        return any(
            deployment.replica_states.get(ReplicaState.RUNNING, 0) > 0
            for deployment in application.deployments.values()
        )
