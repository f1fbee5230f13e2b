"""The engines that a model's `engine.kind` may name, and how a replica starts one, and again when its process has died.

A new backend is a row here.
"""

import asyncio
import importlib
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

from models.adapters import AdapterSource
from models.engine import (
    MAX_STOP_STRINGS,
    EngineChunk,
    EngineFault,
    EngineRequest,
    ReplicaEngine,
    ScoredReply,
    Turn,
)

# Of a replica's environment: what an engine would refuse, if it were not told that requests are checked before.
ENGINE_LIMITS: Mapping[str, str] = {"VLLM_MAX_STOP_STRINGS": str(MAX_STOP_STRINGS)}
# Seconds that vLLM's processes spin when they wait for each other (`models.vllm.plugin`).
SPIN_VARIABLE = "PITH_ENGINE_SPIN_S"
# Part of a GPU that vLLM's core asks Ray for, for each worker; default: 1, which does not fit into a share
# (`vllm.v1.executor.ray_executor_v2`). Ray Serve LLM sets it for its own tasks alone.
WORKER_SHARE_VARIABLE = "VLLM_RAY_PER_WORKER_GPUS"


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """The parameters of an engine's start. `options` are its own, under its own names."""

    model_id: str
    checkpoint: str
    context_length: int
    coalesce_s: float
    options: Mapping[str, Any]
    # That it serves beside the model itself.
    adapters: tuple[AdapterSource, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineKind:
    """`module` has `async def start(spec: EngineSpec) -> ReplicaEngine`, and is imported by replicas alone. None: Ray
    Serve LLM starts the engine (`serve.cluster.deployments.vllm_chat`), which knows how to place it on several GPUs."""

    module: str | None
    computes: bool = True
    # Its engines are `models.engine.SleepableEngine`s, and models with them may take turns.
    sleeps: bool = False


VLLM, FAKE = "vllm", "fake"
ENGINE_KINDS: dict[str, EngineKind] = {
    VLLM: EngineKind(module=None, sleeps=True),
    FAKE: EngineKind(module="models.fake_engine", computes=False, sleeps=True),
}


async def start_engine(kind: str, spec: EngineSpec) -> ReplicaEngine:
    """A started engine that has a module of its own. Raises what its `start` raises."""
    module = ENGINE_KINDS[kind].module
    assert module is not None, f"{kind} is started by Ray Serve LLM"
    return cast(ReplicaEngine, await importlib.import_module(module).start(spec))


LOOK_EVERY_S = 0.1
# For the faults of the requests that were running to reach their callers: a start may keep the event loop.
DELIVER_FAULTS_S = 0.3
logger = logging.getLogger("pith.engine")


class RestartingEngine:
    """Requests that were running when the engine died fail; later ones wait for the restarted engine."""

    def __init__(
        self,
        first: ReplicaEngine,
        start: Callable[[], Awaitable[ReplicaEngine]] | None,
        *,
        give_up: Callable[[], None],
        restarted: Callable[[], None] = lambda: None,
    ) -> None:
        """`start` makes the next engine, once the dead one was stopped; `give_up` is called if it fails or is None, and
        `restarted` once it is up."""
        self._engine = first
        self._start = start
        self._give_up = give_up
        self._restarted = restarted
        self._up = asyncio.Event()
        self._up.set()

    @property
    def is_up(self) -> bool:
        return self._up.is_set()

    @property
    def dead(self) -> bool:
        """True while the engine has died and its restart has not begun."""
        return self.is_up and self._engine.dead

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        """As the engine's own. Yields nothing while the engine restarts: the caller bounds the wait."""
        async with aclosing((await self._living()).generate(request)) as items:
            async for item in items:
                yield item

    async def count_tokens(
        self, request: EngineRequest, *, beyond_context: bool = False
    ) -> int | EngineFault:
        return await (await self._living()).count_tokens(request, beyond_context=beyond_context)

    async def score(
        self, request: EngineRequest, reply: Sequence[int], turn: Turn
    ) -> ScoredReply | EngineFault:
        return await (await self._living()).score(request, reply, turn)

    def pause(self, request: EngineRequest, paused: bool) -> None:
        self._engine.pause(request, paused)

    async def stop(self) -> None:
        await self._engine.stop()

    async def supervise(self) -> None:
        """Restart the engine whenever it dies; returns when it cannot be restarted."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if not self._engine.dead:
                continue
            self._up.clear()
            died_at = time.monotonic()
            logger.error(
                "the engine's process has died; %s", "restarting it" if self._start else "giving it up"
            )
            await asyncio.sleep(DELIVER_FAULTS_S)
            if self._start is None:
                self._give_up()
                return
            try:
                await self._engine.stop()
                self._engine = await self._start()
            except Exception:
                logger.exception("the engine could not be restarted")
                self._give_up()
                return
            self._up.set()
            self._restarted()
            logger.warning("the engine was restarted after %.1f s", time.monotonic() - died_at)

    async def _living(self) -> ReplicaEngine:
        if self._engine.dead:
            # It has not been noticed yet.
            self._up.clear()
        await self._up.wait()
        return self._engine
