"""One replica of several chat models that take turns on its GPUs, and the private port where all are asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from typing import Any

from models.engine import EngineChunk, EngineFault, EngineRequest, SleepableEngine
from models.engine_kinds import RestartingEngine
from models.errors import EngineFailed
from serve.cluster.replicas.applications import bound_key
from serve.cluster.replicas.port import Ports, ReplicaPort
from serve.fairness.engine_turns import EngineTurns, TurnsObserver
from serve.fairness.model_turns import TurnTerms
from serve.fairness.replica_turns import FairGeneration
from serve.metrics.counts import ReplicaMetrics
from serve.money.prompt_bound import bound_fields


class SharedReplica:
    """As `serve.cluster.replicas.port.Replica`, of `engines` by their models, of which the last is awake. It ends as a
    whole: where an engine dies or a swap fails, `give_up` is called, and all of them are started again."""

    def __init__(
        self,
        engines: Mapping[str, SleepableEngine],
        terms: TurnTerms,
        *,
        give_up: Callable[[], None],
        metrics: Mapping[str, ReplicaMetrics],
        observer: TurnsObserver | None = None,
    ) -> None:
        self._bounds = {
            bound_key(model): bound_fields(engine.prompt_making) for model, engine in engines.items()
        }
        self._engines = {
            model: RestartingEngine(one, None, give_up=give_up) for model, one in engines.items()
        }
        self._turns = EngineTurns(engines, terms, give_up=give_up, observer=observer)
        self._fair = {
            model: FairGeneration(
                partial(self._turns.generate, model),
                places=engine.places,
                pause=engine.pause,
                observer=metrics.get(model),
            )
            for model, engine in engines.items()
        }
        self._port = ReplicaPort(self._generate)

    async def open(self, host: str, ports: Ports = None) -> None:
        """Take requests on a free port of `host`, of `ports` if they are given. Raises `OSError`."""
        self._address = await self._port.open(host, ports)
        self._swapping = asyncio.create_task(self._turns.run())
        self._supervising = [asyncio.create_task(one.supervise()) for one in self._engines.values()]

    def metadata(self) -> dict[str, Any]:
        """Metadata that every handle's process gets to know of this replica."""
        return {**self._address.metadata(), **self._bounds}

    async def count_tokens(
        self, request: EngineRequest, *, beyond_context: bool = False
    ) -> int | EngineFault:
        engine = self._engines[request.model_id]
        return await engine.count_tokens(request, beyond_context=beyond_context)

    def check(self) -> None:
        """Raises `EngineFailed` where an engine is dead, or nobody swaps them any more."""
        for model, engine in self._engines.items():
            if engine.dead:
                raise EngineFailed(f"the engine of {model} has died")
        if self._swapping.done():
            raise EngineFailed("the engines do not take turns any more")

    async def close(self) -> None:
        """Take no more requests, and return when the running ones have ended, each in its turn, and all is stopped."""
        await self._port.close()
        for task in (self._swapping, *self._supervising):
            task.cancel()
        await asyncio.gather(*(engine.stop() for engine in self._engines.values()))

    def _generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        return _no_scores() if request.score else self._fair[request.model_id].generate(request)


async def _no_scores() -> AsyncGenerator[EngineFault, None]:
    """No model is woken for what nobody waits for, and none is kept awake."""
    yield EngineFault("rejected", "models that take turns score no replies")
