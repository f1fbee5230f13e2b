"""Scores of replies in a replica: in the time that nobody wants of its engine, and no longer than the replica lives."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from pydantic_core import from_json, to_json

from models.engine import EngineChunk, EngineFault, EngineRequest, ScoredReply, TokenUsage, Turn
from serve.fairness.spare_time import SpareTime

Score = Callable[[EngineRequest, Sequence[int], Turn], Awaitable[ScoredReply | EngineFault]]
# How often an ingress is told that a score which waits is not forgotten.
SIGN_OF_LIFE_S = 0.5


class SpareScores:
    """To be used in one event loop. Scores that wait keep nobody waiting: `close` ends them at once."""

    def __init__(self, score: Score, spare: SpareTime) -> None:
        self._score, self._spare = score, spare
        self._scoring: set[asyncio.Future[ScoredReply | EngineFault]] = set()

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        """Yield signs of life, and at last the score for `scored_reply`, or a fault."""
        scoring = asyncio.ensure_future(self._score(request, request.score, self._spare.turn))
        self._scoring.add(scoring)
        try:
            while not scoring.done():
                await asyncio.wait((scoring,), timeout=SIGN_OF_LIFE_S)
                if not scoring.done():
                    yield EngineChunk(b"", TokenUsage(), finished=False)
            if scoring.cancelled():
                yield EngineFault("unavailable", "the replica is ending")
                return
            found = scoring.result()
            if isinstance(found, ScoredReply):
                yield EngineChunk(to_json(found), TokenUsage(found.prompt_tokens), finished=True)
            else:
                yield found
        finally:
            self._scoring.discard(scoring)
            scoring.cancel()
            await asyncio.gather(scoring, return_exceptions=True)

    def close(self) -> None:
        for scoring in self._scoring:
            scoring.cancel()


def scored_reply(data: bytes) -> ScoredReply:
    """What the last chunk has. Raises `ValueError`, `TypeError` or `KeyError` if it is none."""
    fields = from_json(data)
    lists = {name: tuple(fields[name]) for name in ("log_probs", "likeliest")}
    return ScoredReply(**{**fields, **lists})
