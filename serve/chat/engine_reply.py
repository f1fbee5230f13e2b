"""The engine's reply to one admitted and held request: checked, and forwarded as long as what it uses is paid for."""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import orjson

from models.engine import Engine, EngineChunk, EngineRequest, TokenUsage
from models.errors import EngineFailed
from serve.metrics.chat import ObservedChat
from serve.money.admission import Admitted
from serve.money.held_request import HeldRequest, MoreThanHeld

logger = logging.getLogger("pith.chat")


@dataclass(frozen=True, slots=True)
class EngineReply:
    """Iterate `chunks`, then settle what is `held`."""

    engine: Engine
    request: EngineRequest
    admitted: Admitted
    held: HeldRequest
    observed: ObservedChat

    async def chunks(self) -> AsyncGenerator[EngineChunk, None]:
        """The engine's chunks; their usage is noted. Raises what `Engine.generate` raises."""
        async with aclosing(self.engine.generate(self.request)) as chunks:
            async for chunk in chunks:
                try:
                    self.held.use(chunk.usage)
                except MoreThanHeld:
                    raise self._exceeded(chunk.usage) from None
                yield chunk

    def _exceeded(self, usage: TokenUsage) -> EngineFailed:
        self.observed.exceed()
        model_id = self.request.model_id
        logger.critical("%s: usage %r exceeds the hold %r", model_id, usage, self.held.most)
        return EngineFailed(f"{model_id}: the engine counted more tokens than its stated maximum")

    def begin_delivery(self, first_event: bytes) -> None:
        """Call it before the first byte of a stream is sent. Raises `EngineFailed` if it is not a stream of events."""
        if not first_event.startswith(b"data: {"):
            raise EngineFailed("the engine did not return a stream of server-sent events")
        self.held.delivered = True
        self.observed.deliver()


def checked_reply(data: bytes) -> dict[str, Any]:
    """The engine's chat completion object. Raises `EngineFailed` for any other bytes."""
    try:
        reply = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise EngineFailed("the engine's reply is not JSON") from error
    if not isinstance(reply, dict) or not isinstance(reply.get("choices"), list) or not reply["choices"]:
        raise EngineFailed("the engine's reply is not a chat completion")
    return reply
