"""The deployment of one chat model: Ray Serve's shell around a replica and an engine that starts itself.

vLLM is started by Ray Serve LLM instead: `serve.cluster.deployments.vllm_chat`.
"""

import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import ray
from ray import serve

from models.engine import EngineFault, EngineRequest, ReplicaEngine
from models.engine_kinds import ENGINE_KINDS, EngineSpec, start_engine
from serve.cluster.deployments.deployment_options import deployment_options
from serve.cluster.ray_insides.loopback import PortCheck
from serve.cluster.replicas.replica import Replica
from serve.config.capacity.demand import worker_bundle
from serve.config.chat_models import ModelSettings, shares_of
from serve.fairness.places import Shares
from serve.processes.garbage_collection import freeze_heap


class ChatReplica:
    """What Ray Serve calls; requests go past it, to the replica's own port. Its logic is
    `serve.cluster.replicas.replica.Replica`."""

    async def __init__(  # type: ignore[misc]
        self, kind: str, spec: EngineSpec, *, shares: Shares, on_loopback: bool
    ) -> None:
        start = partial(start_engine, kind, spec)
        await self.open(await start(), start, shares=shares, on_loopback=on_loopback)

    async def open(
        self,
        engine: ReplicaEngine,
        start_again: Callable[[], Awaitable[ReplicaEngine]] | None,
        *,
        shares: Shares,
        on_loopback: bool,
    ) -> None:
        self._ports = PortCheck(on_loopback=on_loopback)
        self._replica = Replica(engine, start_again, shares=shares, give_up=exit_at_once)
        freeze_heap()
        await self._replica.open(ray.util.get_node_ip_address())

    async def record_replica_metadata(self) -> dict[str, Any]:
        """Asked by Ray Serve once."""
        return self._replica.metadata()

    async def awake(self) -> None:
        """Answered by a replica that runs: Ray starts one for it."""

    async def count_tokens(self, request: EngineRequest) -> int | EngineFault:
        return await self._replica.count_tokens(request)

    async def check_health(self) -> None:
        self._ports.pass_once()
        self._replica.check()

    async def __del__(self) -> None:
        # The running requests end first. Ray bounds the time for that.
        await self._replica.close()


def exit_at_once() -> None:
    """End this process, so that Ray starts another at once instead of after three failed health checks."""
    os._exit(1)


def build_model(
    model: ModelSettings, checkpoint: str, *, coalesce_s: float, longest_s: float, on_loopback: bool
) -> Any:
    """The Ray Serve application of one catalog model. `checkpoint` is a hub name or a folder; `longest_s` is what a
    replica that is not needed any more gets to end its requests; `on_loopback`: no other machine may reach it."""
    spec = EngineSpec(model.id, checkpoint, model.context_length, coalesce_s, model.engine.options)
    options = deployment_options(model, longest_s=longest_s)
    given = {"shares": shares_of(model.replicas), "on_loopback": on_loopback}
    if ENGINE_KINDS[model.engine.kind].module is None:
        from serve.cluster.deployments.vllm_chat import build_vllm_model

        return build_vllm_model(model, spec, options, given)
    deployment = serve.deployment(ChatReplica, **options, ray_actor_options=_resources(model))
    return deployment.bind(model.engine.kind, spec, **given)


def _resources(model: ModelSettings) -> dict[str, Any]:
    """The engine runs in the replica's process, or in processes that this one starts: all that it needs is asked for
    with the replica."""
    worker = worker_bundle(model)
    return {
        "num_cpus": 1 + worker.get("CPU", 0),
        "num_gpus": worker.get("GPU", 0),
        **({"accelerator_type": model.accelerator.type} if model.accelerator.type else {}),
        "runtime_env": {"env_vars": dict(model.environment)},
    }
