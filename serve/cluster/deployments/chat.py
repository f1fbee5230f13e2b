"""The deployment of a chat model, or of several that take turns: Ray Serve's shell around a replica and engines that
start themselves.

vLLM is started by Ray Serve LLM instead: `serve.cluster.deployments.vllm_chat`.
"""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import ray

from models.engine import EngineFault, EngineRequest, ReplicaEngine
from models.engine_kinds import EngineSpec, start_engine
from serve.cluster.deployments.starting import paced
from serve.cluster.ray_insides.ray_serve import PortCheck
from serve.cluster.replicas.port import Ports, Replica
from serve.cluster.replicas.shared import SharedReplica
from serve.fairness.engine_turns import SleepableStart, start_one_after_another
from serve.fairness.model_turns import TurnTerms
from serve.logs.outlet import LogPlan, begin_logs
from serve.metrics.counts import OpenMetrics, open_replica_metrics
from serve.processes.process_setup import prepare_interpreter


@dataclass(frozen=True, slots=True)
class ReplicaTerms:
    """`on_loopback`: no other machine may reach the replica.
    `ports`: those that it may listen on. `counts_in`: the server's folder of metrics. `spare_share`: of the engine's
    time, what replies may be scored in."""

    on_loopback: bool
    ports: Ports
    counts_in: Path | None
    logs: LogPlan
    spare_share: float = 0.0


Start = Callable[[], Awaitable[ReplicaEngine]]


class ChatReplica:
    """The shell that Ray Serve calls; requests go past it, to the replica's own port. Its logic is
    `serve.cluster.replicas.port.Replica`, or that of `serve.cluster.replicas.shared` for models that take turns."""

    @paced
    async def __init__(  # type: ignore[misc]
        self, kind: str, specs: Sequence[EngineSpec], turns: TurnTerms | None, terms: ReplicaTerms
    ) -> None:
        begin_logs(terms.logs)
        starts = {spec.model_id: partial(start_engine, kind, spec) for spec in specs}
        metrics = open_replica_metrics(terms.counts_in, [*starts])
        await self.open(starts, next(iter(starts.values())), turns, terms, metrics)

    async def open(
        self,
        starts: Mapping[str, Start],
        start_again: Start | None,
        turns: TurnTerms | None,
        terms: ReplicaTerms,
        metrics: OpenMetrics,
    ) -> None:
        """Start the engines, by their models, and take requests. `start_again` is for one that is alone."""
        by_model, of_turns = metrics
        if turns is None:
            ((model, start),) = starts.items()
            self._replica: Replica | SharedReplica = Replica(
                await start(),
                start_again,
                give_up=exit_at_once,
                metrics=by_model.get(model),
                spare_share=terms.spare_share,
            )
        else:
            # The configuration has no others in turns (`models.engine_kinds.EngineKind.sleeps`).
            engines = await start_one_after_another(cast(Mapping[str, SleepableStart], starts))
            self._replica = SharedReplica(
                engines, turns, give_up=exit_at_once, metrics=by_model, observer=of_turns
            )
        self._ports = PortCheck(on_loopback=terms.on_loopback)
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
