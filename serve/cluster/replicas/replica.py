"""One replica of a chat model, whatever its engine: kept up, shared among projects, reached at a port of its own."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from models.engine import EngineFault, EngineRequest, ReplicaEngine
from models.errors import EngineFailed
from models.restarting_engine import RestartingEngine
from serve.cluster.replicas.applications import BOUND_KEY
from serve.cluster.replicas.port import ADDRESS_KEY, Ports, ReplicaPort
from serve.fairness.places import Shares
from serve.fairness.replica_turns import FairGeneration
from serve.metrics.engine_files import ReplicaMetrics
from serve.money.prompt_bound import proven_bound


class Replica:
    """To be made and used in one event loop. `start_again` makes an engine in the place of one that died; `give_up` is
    called where it cannot, or is None. `metrics`, where it has any, are counted in the same loop."""

    def __init__(
        self,
        engine: ReplicaEngine,
        start_again: Callable[[], Awaitable[ReplicaEngine]] | None,
        *,
        shares: Shares,
        give_up: Callable[[], None],
        metrics: ReplicaMetrics | None = None,
    ) -> None:
        making = engine.prompt_making
        bound = proven_bound(making) if making is not None else None
        # Of every engine that follows too: template and tokenizer stay.
        self._bound = asdict(bound) if bound is not None else None
        restarted = {} if metrics is None else {"restarted": metrics.restart}
        self._engine = RestartingEngine(engine, start_again, give_up=give_up, **restarted)
        fair = FairGeneration(self._engine.generate, places=engine.places, shares=shares, observer=metrics)
        self._port = ReplicaPort(fair.generate)

    async def open(self, host: str, ports: Ports = None) -> None:
        """Take requests on a free port of `host`, of `ports` if they are given. Raises `OSError`."""
        self._address = await self._port.open(host, ports)
        self._supervising = asyncio.create_task(self._engine.supervise())

    def metadata(self) -> dict[str, Any]:
        """What every handle's process gets to know of this replica."""
        return {ADDRESS_KEY: asdict(self._address), BOUND_KEY: self._bound}

    async def count_tokens(
        self, request: EngineRequest, *, beyond_context: bool = False
    ) -> int | EngineFault:
        return await self._engine.count_tokens(request, beyond_context=beyond_context)

    def check(self) -> None:
        """Raises `EngineFailed` where the engine is dead. One that is being restarted is not reported."""
        if self._engine.dead:
            raise EngineFailed("the engine has died")

    async def close(self) -> None:
        """Take no more requests, and return when the running ones have ended and the engine is stopped."""
        await self._port.close()
        self._supervising.cancel()
        await self._engine.stop()
