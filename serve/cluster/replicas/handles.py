"""Compression, embedding and rerank models behind handles of Ray Serve."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
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


Failure = Callable[[str], Exception]


@dataclass(frozen=True, slots=True)
class Failures:
    """Errors of a call that no replica has answered, made of the reason: none came in time, as many wait as may, or the
    replica died."""

    late: Failure
    full: Failure
    died: Failure


async def answer_of(response: DeploymentResponse, model_id: str, within_s: float, failures: Failures) -> Any:
    """What a replica answers to a call of its handle. Raises one of `failures`, or the fault that it answers."""
    try:
        async with asyncio.timeout(within_s):
            answer = await response
    except TimeoutError:
        response.cancel()
        raise failures.late(f"{model_id}: no answer within {within_s:g} s") from None
    except asyncio.CancelledError:
        response.cancel()
        raise
    except (BackPressureError, DeploymentUnavailableError) as error:
        raise failures.full(f"{model_id}: no replica can take the request") from error
    except (TaskCancelledError, RayError, RayServeException) as error:
        raise failures.died(f"{model_id}: the model died while it worked on this") from error
    if isinstance(answer, CompressionFault | EngineFault):
        raise answer.error()
    return answer


class RayCompressor:
    """One compression model's replicas, which `app` names. `longest_s` bounds a request, the start of a replica
    included: for a replica that gives no answer at all, since each ends its own work in time."""

    def __init__(self, model_id: str, app: str, handle: DeploymentHandle, *, longest_s: float) -> None:
        self._handle = handle.options(method_name="compress")
        self._counting = handle.options(method_name="count_tokens")
        self._longest_s = longest_s
        self._model_id = model_id
        self._failures = Failures(CompressorUnavailable, CompressorOverloaded, CompressorFailed)
        self.ready = ReplicaStatus(app).is_running

    async def compress(self, request: CompressionRequest, terms: JobTerms = NO_TERMS) -> CompressionResult:
        result = await answer_of(
            self._handle.remote(request, terms), self._model_id, self._longest_s, self._failures
        )
        assert isinstance(result, CompressionResult)
        return result

    async def count_tokens(self, text: str, terms: JobTerms = NO_TERMS) -> int:
        return int(
            await answer_of(
                self._counting.remote(text, terms), self._model_id, self._longest_s, self._failures
            )
        )


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
        self._handle = handle.options(method_name="retrieve")
        self._deadline_s = deadline_s
        self._longest_s = longest_s
        late = partial(EngineTimedOut, retry_after_s=retry_after_s)
        full = partial(EngineUnavailable, retry_after_s=retry_after_s)
        self._model_id = model_id
        self._failures = Failures(late, full, EngineFailed)
        self.ready = ReplicaStatus(app).is_running

    async def compute(self, job: RetrievalJob, *, payer: str) -> Computed:
        terms = JobTerms(payer=payer, deadline_s=self._deadline_s)
        answer = await answer_of(
            self._handle.remote(job, terms), self._model_id, self._longest_s, self._failures
        )
        assert isinstance(answer, Computed)
        return answer
