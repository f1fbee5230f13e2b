"""Generation within an engine's replica, where all ingress processes meet: each project has its places and turns."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from time import perf_counter
from typing import Protocol

from models.engine import EngineChunk, EngineFault, EngineRequest
from serve.fairness.claims import claim_of
from serve.fairness.places import FairPlaces, Shares
from serve.fairness.queue import Claim

Generate = Callable[[EngineRequest], AsyncGenerator[EngineChunk | EngineFault, None]]


class TurnObserver(Protocol):
    """Told of each request: it waits, and then gives up or begins; one that has begun ends."""

    def wait(self) -> None: ...

    def give_up(self) -> None: ...

    def begin(self, waited_s: float) -> None: ...

    def end(self) -> None: ...


class FairGeneration:
    """An engine that runs `places` sequences at once. A request that waits sends nothing, so its client can give up."""

    def __init__(
        self, generate: Generate, *, places: int, shares: Shares, observer: TurnObserver | None = None
    ) -> None:
        self._generate = generate
        self._observer = observer
        self._all = places
        self._places = FairPlaces(lambda: places, shares=shares)

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        """What the engine yields, once there is room for the request."""
        most = request.most_choices(self._all)
        if request.choices > most:
            yield EngineFault("rejected", f"at most {most} choices of a prompt with this model", "n")
            return
        claim = claim_of(request, places=request.places(self._all))
        await self._enter(claim)
        used_tokens = 0
        try:
            async with aclosing(self._generate(request)) as items:
                async for item in items:
                    if isinstance(item, EngineChunk):
                        used_tokens = item.usage.total_tokens
                    yield item
        finally:
            self._places.leave(claim, used_tokens=used_tokens)
            if self._observer is not None:
                self._observer.end()

    async def _enter(self, claim: Claim) -> None:
        observer = self._observer
        if observer is None:
            await self._places.enter(claim)
            return
        asked = perf_counter()
        observer.wait()
        try:
            await self._places.enter(claim)
        except BaseException:
            observer.give_up()
            raise
        observer.begin(perf_counter() - asked)
