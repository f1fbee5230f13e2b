"""Compression, embedding and rerank models behind handles of Ray Serve."""

import asyncio
import time
from typing import Any

from ray import serve
from ray.exceptions import RayError, TaskCancelledError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RayServeException
from ray.serve.handle import DeploymentHandle, DeploymentResponse
from ray.serve.schema import ReplicaState

from compression.pipeline.errors import CompressorFailed, CompressorOverloaded, CompressorUnavailable
from compression.pipeline.request import CompressionRequest, CompressionResult
from compression.pipeline.served import NO_TERMS, CompressionFault, JobTerms
from models.engine import EngineFault
from models.errors import EngineFailed, EngineTimedOut, EngineUnavailable
from models.retrieval import Computed, RetrievalJob

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


class RayCompressor:
    """One compression model's replicas, which `app` names. `longest_s` bounds a request, the start of a replica
    included: for a replica that gives no answer at all, since each ends its own work in time."""

    def __init__(self, model_id: str, app: str, handle: DeploymentHandle, *, longest_s: float) -> None:
        self._model_id = model_id
        self._handle = handle.options(method_name="compress")
        self._counting = handle.options(method_name="count_tokens")
        self._longest_s = longest_s
        self._status = ReplicaStatus(app)

    async def compress(self, request: CompressionRequest, terms: JobTerms = NO_TERMS) -> CompressionResult:
        result = await self._answer(self._handle.remote(request, terms))
        assert isinstance(result, CompressionResult)
        return result

    async def count_tokens(self, text: str, terms: JobTerms = NO_TERMS) -> int:
        return int(await self._answer(self._counting.remote(text, terms)))

    async def _answer(self, response: DeploymentResponse) -> Any:
        try:
            async with asyncio.timeout(self._longest_s):
                answer = await response
        except TimeoutError:
            response.cancel()
            raise CompressorUnavailable(f"{self._model_id}: no answer within {self._longest_s:g} s") from None
        except asyncio.CancelledError:
            response.cancel()
            raise
        except (BackPressureError, DeploymentUnavailableError) as error:
            raise CompressorOverloaded(f"{self._model_id}: no replica can take the request") from error
        except (TaskCancelledError, RayError, RayServeException) as error:
            raise CompressorFailed(
                f"{self._model_id}: the compressor died while it worked on this"
            ) from error
        if isinstance(answer, CompressionFault):
            raise answer.error()
        return answer

    async def ready(self) -> bool:
        """Whether a replica is running."""
        return await self._status.is_running()


class RayRetriever:
    """One model's replicas, which `app` names. The replica ends work that takes longer than `deadline_s`; `longest_s`
    bounds a request, the start of a replica included, where no answer comes at all."""

    def __init__(
        self,
        model_id: str,
        app: str,
        handle: DeploymentHandle,
        *,
        deadline_s: float,
        longest_s: float,
        retry_after_s: int,
    ) -> None:
        self._model_id = model_id
        self._handle = handle.options(method_name="retrieve")
        self._deadline_s = deadline_s
        self._longest_s = longest_s
        self._retry_after_s = retry_after_s
        self._status = ReplicaStatus(app)

    async def compute(self, job: RetrievalJob, *, payer: str) -> Computed:
        terms = JobTerms(payer=payer, deadline_s=self._deadline_s)
        answer = await self._answer(self._handle.remote(job, terms))
        if isinstance(answer, EngineFault):
            raise answer.error()
        return answer

    async def _answer(self, response: DeploymentResponse) -> Computed | EngineFault:
        try:
            async with asyncio.timeout(self._longest_s):
                answer: Computed | EngineFault = await response
                return answer
        except TimeoutError:
            response.cancel()
            message = f"{self._model_id}: no answer within {self._longest_s:g} s"
            raise EngineTimedOut(message, retry_after_s=self._retry_after_s) from None
        except asyncio.CancelledError:
            response.cancel()
            raise
        except (BackPressureError, DeploymentUnavailableError) as error:
            raise self._unavailable("no replica can take the request") from error
        except (TaskCancelledError, RayError, RayServeException) as error:
            raise EngineFailed(f"{self._model_id}: the model died while it worked on this") from error

    def _unavailable(self, reason: str) -> EngineUnavailable:
        return EngineUnavailable(f"{self._model_id}: {reason}", retry_after_s=self._retry_after_s)

    async def ready(self) -> bool:
        """Whether a replica is running."""
        return await self._status.is_running()
