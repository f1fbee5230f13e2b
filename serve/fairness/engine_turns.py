"""Engines that share a GPU in one process: one is awake, and requests of the others wait until it is their turn.

`ModelTurns` says whose turn it is; this calls the engines. What waits for a turn sends nothing, as what waits for a
replica that starts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Protocol

from models.engine import EngineChunk, EngineFault, EngineRequest, SleepableEngine
from serve.fairness.model_turns import ModelTurns, Swap, TurnTerms

# What has not fallen asleep or woken up by then never will.
LONGEST_SWAP_S = 600.0
logger = logging.getLogger("pith.turns")
SleepableStart = Callable[[], Awaitable[SleepableEngine]]


class TurnsObserver(Protocol):
    """Told of requests that wait for their model's turn, one more or one less, and of each model that is awake from
    now on, with what the swap took; 0 for the first."""

    def wait(self, model: str, change: int) -> None: ...

    def woke(self, model: str, took_s: float) -> None: ...


async def start_one_after_another(starts: Mapping[str, SleepableStart]) -> dict[str, SleepableEngine]:
    """Each sleeps before the next one starts, which so finds the GPU empty; the first of them is the last to start, and
    stays awake."""
    engines: dict[str, SleepableEngine] = {}
    for model in reversed([*starts]):
        for before in [*engines.values()][-1:]:
            await before.sleep()
        engines[model] = await starts[model]()
    return engines


class EngineTurns:
    """To be made and used in one event loop. `engines` are those of `start_one_after_another`: the last is awake.
    `give_up` is called where a swap fails: nobody knows then what is in the GPU's memory."""

    def __init__(
        self,
        engines: Mapping[str, SleepableEngine],
        terms: TurnTerms,
        *,
        give_up: Callable[[], None],
        observer: TurnsObserver | None = None,
    ) -> None:
        self._engines = engines
        self._give_up = give_up
        self._observer = observer
        awake = [*engines][-1]
        self._turns = ModelTurns(engines, terms, awake=awake, now=_now())
        # In the order of asking, and whether each is in the background.
        self._waiting: dict[str, dict[asyncio.Future[None], bool]] = {model: {} for model in engines}
        self._changed = asyncio.Event()
        if observer is not None:
            observer.woke(awake, 0.0)

    async def generate(
        self, model: str, request: EngineRequest
    ) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        """Yield what the model's engine does, from its turn on."""
        engine, has_begun = self._engines[model], False
        try:
            async with self._turn(model, background=request.background):
                has_begun = True
                async with aclosing(engine.generate(request)) as items:
                    async for item in items:
                        yield item
        finally:
            if not has_begun:
                # It may have been paused while it waited, and the engine is to forget it.
                engine.pause(request, False)

    async def run(self) -> None:
        """Swap when it is time. Returns when a swap has failed."""
        while True:
            self._changed.clear()
            step = self._turns.next(_now())
            # Those that came while a turn was to end, and it goes on.
            self._let_in()
            if not isinstance(step, Swap):
                await self._wait(step)
            elif not await self._made(step):
                return

    @asynccontextmanager
    async def _turn(self, model: str, *, background: bool) -> AsyncIterator[None]:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.come(model, _now(), background=background)
        self._waiting[model][turn] = background
        self._let_in()
        self._changed.set()
        try:
            await self._granted(model, turn)
            yield
        finally:
            self._waiting[model].pop(turn, None)
            has_begun = turn.done() and not turn.cancelled()
            self._turns.leave(model, has_begun=has_begun, background=background)
            self._changed.set()

    async def _granted(self, model: str, turn: asyncio.Future[None]) -> None:
        if self._observer is None or turn.done():
            return await turn
        self._observer.wait(model, 1)
        try:
            await turn
        finally:
            self._observer.wait(model, -1)

    def _let_in(self) -> None:
        """All that wait for the model whose turn it is. They count as running from now on, before they learn of it."""
        model = self._turns.awake
        if not self._turns.may_run(model):
            return
        for turn, background in self._waiting[model].items():
            if not turn.done():
                self._turns.begin(model, background=background)
                turn.set_result(None)
        self._waiting[model].clear()

    async def _wait(self, until: float | None) -> None:
        """Until something happens, or it is time to ask again."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._changed.wait()

    async def _made(self, swap: Swap) -> bool:
        """Whether the one sleeps and the other is awake."""
        began = _now()
        try:
            async with asyncio.timeout(LONGEST_SWAP_S):
                await self._engines[swap.asleep].sleep()
                await self._engines[swap.awake].wake()
        except Exception:
            logger.exception("%s could not make way for %s", swap.asleep, swap.awake)
            self._give_up()
            return False
        self._turns.woke(_now())
        self._let_in()
        if self._observer is not None:
            self._observer.woke(swap.awake, _now() - began)
        logger.info("%s sleeps, and %s is awake after %.1f s", swap.asleep, swap.awake, _now() - began)
        return True


def _now() -> float:
    return asyncio.get_running_loop().time()
