"""An embedding or rerank model behind a Ray Serve handle: the `models.retrieval.RetrievalModel` of a server."""

import asyncio

from ray.exceptions import RayError, TaskCancelledError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RayServeException
from ray.serve.handle import DeploymentHandle, DeploymentResponse

from compression.pipeline.served import JobTerms
from models.engine import EngineFault
from models.errors import EngineFailed, EngineTimedOut, EngineUnavailable
from models.retrieval import Computed, RetrievalJob
from serve.cluster.replicas.status import ReplicaStatus


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
