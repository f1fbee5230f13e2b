"""Deployments of models whose replicas put in order what waits: compressors, and embedding and rerank models."""

from __future__ import annotations

import asyncio
from typing import Any

from ray import serve

from compression.pipeline.compression_model import (
    CompressionFault,
    CompressionRequest,
    CompressionResult,
    JobTerms,
    as_value,
)
from models.embedding_backends import Computed, RetrievalJob
from models.engine import EngineFault
from serve.cluster.deployments.deployment_options import at_most, pooled_options
from serve.cluster.deployments.retrieval_replica import computed_in_pool, start_replica
from serve.cluster.deployments.starting import paced
from serve.cluster.ray_insides.ray_serve import PortCheck
from serve.config.compression_models import CompressionModelSettings, plan_of_model, spec_of
from serve.config.retrieval_models import RetrievalModelSettings
from serve.config.settings import Settings
from serve.logs.outlet import LOGS, LogPlan, begin_logs
from serve.metrics.counts import open_counts


class CompressReplica:
    """A compression model's replica. Its logic is `compression.workers.pooled_model.PooledModel`."""

    @paced
    async def __init__(self, model: CompressionModelSettings, settings: Settings, logs: LogPlan) -> None:  # type: ignore[misc]
        begin_logs(logs)
        counts = open_counts(settings, "compressor", model=model.id)
        from compression.workers.pooled_model import start_model
        from serve.metrics.background import PoolMetrics

        self._ports = PortCheck(on_loopback=not settings.ray.address)
        metrics = PoolMetrics(counts, model.id)
        self._model = await start_model(spec_of(model), plan_of_model(model), metrics)

    async def compress(
        self, request: CompressionRequest, terms: JobTerms
    ) -> CompressionResult | CompressionFault:
        return await as_value(self._model.compress(request, terms))

    async def count_tokens(self, text: str, terms: JobTerms) -> int | CompressionFault:
        return await as_value(self._model.count_tokens(text, terms))

    async def retrieve(self, job: RetrievalJob, terms: JobTerms) -> Computed | EngineFault:
        """For the embedding and rerank models that run on the same weights."""
        return await computed_in_pool(self._model, job, terms)

    async def check_health(self) -> None:
        self._ports.pass_once()
        self._model.check()

    async def __del__(self) -> None:
        await self._model.close()


def build_compressor(
    model: CompressionModelSettings, settings: Settings, logs: LogPlan = LOGS, *, per_node: int | None = None
) -> Any:
    """The Ray Serve application of one compression model. `per_node`: how many of its replicas a node may have."""
    resources = {
        "num_cpus": 1,
        "num_gpus": model.replicas.gpus,
    }
    deployment = serve.deployment(
        CompressReplica, **pooled_options(model), **at_most(per_node), ray_actor_options=resources
    )
    return deployment.bind(model, settings, logs)


class RetrievalDeployment:
    """The shell that Ray Serve calls; the work is a `models.embedding_backends.RetrievalReplica`'s."""

    @paced
    async def __init__(self, model: RetrievalModelSettings, settings: Settings, logs: LogPlan) -> None:  # type: ignore[misc]
        begin_logs(logs)
        open_counts(settings, "retrieval", model=model.id)
        self._ports = PortCheck(on_loopback=not settings.ray.address)
        self._engine = await start_replica(model)

    async def retrieve(self, job: RetrievalJob, terms: JobTerms) -> Computed | EngineFault:
        try:
            async with asyncio.timeout(terms.deadline_s):
                return await self._engine.compute(job, payer=terms.payer)
        except TimeoutError:
            return EngineFault(
                "timed_out", f"not done within {terms.deadline_s:g} s, waiting included; the work was ended"
            )

    async def check_health(self) -> None:
        self._ports.pass_once()
        self._engine.check()

    async def __del__(self) -> None:
        await self._engine.stop()


def build_retrieval_model(
    model: RetrievalModelSettings, settings: Settings, logs: LogPlan = LOGS, *, per_node: int | None = None
) -> Any:
    """The Ray Serve application of one model. `per_node`: how many of its replicas a node may have."""
    accelerator = model.accelerator
    resources = {
        "num_cpus": 1,
        "num_gpus": accelerator.share if accelerator.kind == "gpu" else 0,
        **({"accelerator_type": accelerator.type} if accelerator.type else {}),
        "runtime_env": {"env_vars": model.environment},
    }
    deployment = serve.deployment(
        RetrievalDeployment, **pooled_options(model), **at_most(per_node), ray_actor_options=resources
    )
    return deployment.bind(model, settings, logs)
