"""A compression model behind a Ray Serve handle: the `compression.pipeline.served.CompressionModel` of a server."""

import asyncio
from typing import Any

from ray.exceptions import RayError, TaskCancelledError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RayServeException
from ray.serve.handle import DeploymentHandle, DeploymentResponse

from compression.pipeline.errors import CompressorFailed, CompressorOverloaded, CompressorUnavailable
from compression.pipeline.request import CompressionRequest, CompressionResult
from compression.pipeline.served import NO_TERMS, CompressionFault, JobTerms
from serve.cluster.replicas.status import ReplicaStatus


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
