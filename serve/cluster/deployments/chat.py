"""The deployment of one chat model: Ray Serve's shell around a replica and an engine that starts itself.

vLLM is started by Ray Serve LLM instead: `serve.cluster.deployments.vllm_chat`.
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray import serve

from models.adapters import AdapterSource
from models.engine import EngineFault, EngineRequest, ReplicaEngine
from models.engine_kinds import ENGINE_KINDS, EngineSpec, start_engine
from serve.cluster.deployments.deployment_options import at_most, deployment_options
from serve.cluster.ray_insides.loopback import PortCheck
from serve.cluster.replicas.port import Ports, Replica
from serve.config.capacity.demand import worker_bundle
from serve.config.chat_models import ModelSettings, shares_of
from serve.fairness.places import Shares
from serve.logs.outlet import LOGS, LogPlan, begin_logs
from serve.metrics.engine_files import ReplicaMetrics, open_replica_metrics
from serve.processes.process_setup import prepare_interpreter
from serve.tracing.collector import TracingTerms


class ChatReplica:
    """What Ray Serve calls; requests go past it, to the replica's own port. Its logic is
    `serve.cluster.replicas.port.Replica`."""

    async def __init__(  # type: ignore[misc]
        self,
        kind: str,
        spec: EngineSpec,
        *,
        shares: Shares,
        on_loopback: bool,
        ports: Ports,
        counts_in: Path | None,
        logs: LogPlan,
    ) -> None:
        begin_logs(logs)
        start = partial(start_engine, kind, spec)
        metrics = open_replica_metrics(counts_in, spec.model_id)
        engine = await start()
        await self.open(engine, start, shares=shares, on_loopback=on_loopback, ports=ports, metrics=metrics)

    async def open(
        self,
        engine: ReplicaEngine,
        start_again: Callable[[], Awaitable[ReplicaEngine]] | None,
        *,
        shares: Shares,
        on_loopback: bool,
        ports: Ports,
        metrics: ReplicaMetrics | None,
    ) -> None:
        self._ports = PortCheck(on_loopback=on_loopback)
        self._replica = Replica(engine, start_again, shares=shares, give_up=exit_at_once, metrics=metrics)
        prepare_interpreter()
        await self._replica.open(ray.util.get_node_ip_address(), ports)

    async def record_replica_metadata(self) -> dict[str, Any]:
        """Asked by Ray Serve once."""
        return self._replica.metadata()

    async def awake(self) -> None:
        """Answered by a replica that runs: Ray starts one for it."""

    async def count_tokens(
        self, request: EngineRequest, *, beyond_context: bool = False
    ) -> int | EngineFault:
        return await self._replica.count_tokens(request, beyond_context=beyond_context)

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
    model: ModelSettings,
    checkpoint: str,
    *,
    adapters: Sequence[AdapterSource] = (),
    coalesce_s: float,
    longest_s: float,
    on_loopback: bool,
    ports: Ports = None,
    counts_in: Path | None,
    counts_engine: bool = True,
    logs: LogPlan = LOGS,
    tracing: TracingTerms | None = None,
    run_folder: Path | None = None,
    per_node: int | None = None,
) -> Any:
    """The Ray Serve application of one catalog model. `checkpoint` is a hub name or a folder; `longest_s` is what a
    replica that is not needed any more gets to end its requests; `on_loopback`: no other machine may reach it; `ports`:
    those it may listen on; `counts_in` is the server's folder of metrics, `counts_engine`: vLLM's own are too;
    `tracing`: where an engine that traces sends its spans; `run_folder`: the server's, on its machine, where the steps
    of the start are told; `adapters`: its engines serve them too; `per_node`: how many of its replicas a node may
    have."""
    spec = EngineSpec(
        model.id, checkpoint, model.context_length, coalesce_s, model.engine.options, tuple(adapters)
    )
    options = deployment_options(model, longest_s=longest_s)
    given = {
        "shares": shares_of(model.replicas),
        "on_loopback": on_loopback,
        "ports": ports,
        "counts_in": counts_in,
        "logs": logs,
    }
    if ENGINE_KINDS[model.engine.kind].module is None:
        from serve.cluster.deployments.vllm_chat import build_vllm_model

        of_vllm = {"tracing": tracing, "counts_engine": counts_engine, "run_folder": run_folder}
        return build_vllm_model(model, spec, options, given | of_vllm)
    deployment = serve.deployment(
        ChatReplica, **options, **at_most(per_node), ray_actor_options=_resources(model)
    )
    return deployment.bind(model.engine.kind, spec, **given)


def _resources(model: ModelSettings) -> dict[str, Any]:
    """The engine runs in the replica's process, or in processes that this one starts: all that it needs is asked for
    with the replica."""
    worker = worker_bundle(model)
    return {
        "num_cpus": 1 + worker.get("CPU", 0),
        "num_gpus": worker.get("GPU", 0),
        **({"accelerator_type": model.accelerator.type} if model.accelerator.type else {}),
        "runtime_env": {"env_vars": model.engine_environment()},
    }
