"""Generation within an engine's replica, where all ingress processes meet: each project has its places and turns."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from models.engine import EngineChunk, EngineFault, EngineRequest
from serve.fairness.claims import choices_of, claim_of
from serve.fairness.places import FairPlaces, Shares

Generate = Callable[[EngineRequest], AsyncGenerator[EngineChunk | EngineFault, None]]


class FairGeneration:
    """An engine that runs `places` sequences at once. A request that waits sends nothing, so its client can give up."""

    def __init__(self, generate: Generate, *, places: int, shares: Shares) -> None:
        self._generate = generate
        self._places = FairPlaces(lambda: places, shares=shares)

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        """What the engine yields, once there is room for the request."""
        claim = claim_of(request, places=choices_of(request))
        await self._places.enter(claim)
        used_tokens = 0
        try:
            async with aclosing(self._generate(request)) as items:
                async for item in items:
                    if isinstance(item, EngineChunk):
                        used_tokens = item.usage.total_tokens
                    yield item
        finally:
            self._places.leave(claim, used_tokens=used_tokens)
