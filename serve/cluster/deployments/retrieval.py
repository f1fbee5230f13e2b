"""The deployment of one embedding or rerank model that has processes of its own: on an encoder or on vLLM."""

from __future__ import annotations

import asyncio
from typing import Any

from ray import serve

from compression.pipeline.served import JobTerms
from models.engine import EngineFault
from models.retrieval import Computed, RetrievalJob
from serve.cluster.deployments.deployment_options import at_most, pooled_options
from serve.cluster.deployments.retrieval_replica import start_replica
from serve.cluster.ray_insides.loopback import PortCheck
from serve.config.retrieval_models import RetrievalModelSettings
from serve.config.settings import Settings
from serve.logs.outlet import LOGS, LogPlan, begin_logs
from serve.metrics.process_files import count_in_files, metrics_environment


class RetrievalDeployment:
    """What Ray Serve calls; the work is a `models.retrieval.RetrievalReplica`'s."""

    async def __init__(self, model: RetrievalModelSettings, settings: Settings, logs: LogPlan) -> None:  # type: ignore[misc]
        begin_logs(logs)
        # Before anything imports prometheus_client.
        count_in_files(settings, "retrieval", model=model.id)
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
        "runtime_env": {"env_vars": {**metrics_environment(settings), **model.environment}},
    }
    deployment = serve.deployment(
        RetrievalDeployment, **pooled_options(model), **at_most(per_node), ray_actor_options=resources
    )
    return deployment.bind(model, settings, logs)
