"""Restarts an engine whose own process has died; requests wait for the restart."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from models.engine import EngineChunk, EngineFault, EngineRequest, ReplicaEngine

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
