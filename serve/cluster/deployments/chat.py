"""The deployment of one chat model: Ray Serve's shell around a replica and an engine that starts itself.

vLLM is started by Ray Serve LLM instead: `serve.cluster.deployments.vllm_chat`.
"""

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ray

from models.engine import EngineFault, EngineRequest, ReplicaEngine
from models.engine_kinds import EngineSpec, start_engine
from serve.cluster.ray_insides.ray_serve import PortCheck
from serve.cluster.replicas.port import Ports, Replica
from serve.logs.outlet import LogPlan, begin_logs
from serve.metrics.counts import ReplicaMetrics, open_replica_metrics
from serve.processes.process_setup import prepare_interpreter


@dataclass(frozen=True, slots=True)
class ReplicaTerms:
    """`on_loopback`: no other machine may reach the replica.
    `ports`: those that it may listen on. `counts_in`: the server's folder of metrics."""

    on_loopback: bool
    ports: Ports
    counts_in: Path | None
    logs: LogPlan


class ChatReplica:
    """The shell that Ray Serve calls; requests go past it, to the replica's own port. Its logic is
    `serve.cluster.replicas.port.Replica`."""

    async def __init__(self, kind: str, spec: EngineSpec, terms: ReplicaTerms) -> None:  # type: ignore[misc]
        begin_logs(terms.logs)
        start = partial(start_engine, kind, spec)
        metrics = open_replica_metrics(terms.counts_in, spec.model_id)
        await self.open(await start(), start, terms, metrics)

    async def open(
        self,
        engine: ReplicaEngine,
        start_again: Callable[[], Awaitable[ReplicaEngine]] | None,
        terms: ReplicaTerms,
        metrics: ReplicaMetrics | None,
    ) -> None:
        self._ports = PortCheck(on_loopback=terms.on_loopback)
        self._replica = Replica(engine, start_again, give_up=exit_at_once, metrics=metrics)
        prepare_interpreter()
        await self._replica.open(ray.util.get_node_ip_address(), terms.ports)

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
