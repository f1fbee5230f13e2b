"""Chats that survive their engine: where a replica dies, another goes on from the tokens that were delivered.

The reply is one: its usage, the hash of its tokens and its end are those of the whole. A chat that kills its engine
goes on a bounded number of times, so that it does not kill one replica after the other.
"""

from __future__ import annotations

import asyncio
import re
import time
from array import array
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from models.engine import EngineChunk, EngineRequest, TokenUsage
from models.errors import EngineDied, EngineUnavailable

# Of a request and the seconds in which a replica must begin; None: as long as any request waits.
Generate = Callable[[EngineRequest, float | None], AsyncGenerator[EngineChunk, None]]
# These make a token depend on more than the tokens before it, or make more of a reply than its text.
ENDS_WITH_ITS_ENGINE = frozenset(
    {
        "frequency_penalty",
        "logprobs",
        "presence_penalty",
        "response_format",
        "structured_outputs",
        "tools",
        "top_logprobs",
    }
)
ASK_AGAIN_S = 0.1
# Inside a text its quotes would be escaped.
_CREATED = re.compile(rb'(?<!\\)"created":\s*\d+')
_ENDED = re.compile(rb'(?<!\\)"finish_reason":\s*"')


def may_survive(request: EngineRequest) -> bool:
    """True for one chat completion whose tokens follow from the tokens before them."""
    options = request.options
    if request.form != "chat" or request.choices > 1 or request.score:
        return False
    if options.get("seed") is not None and options.get("temperature") != 0:
        # A seeded sampler cannot be put where another was.
        return False
    if any(options.get(name) for name in ENDS_WITH_ITS_ENGINE):
        return False
    return not any(name.startswith("guided_") for name in options)


async def surviving(
    generate: Generate, request: EngineRequest, *, times: int, wait_s: float
) -> AsyncGenerator[EngineChunk, None]:
    """Yield the reply's chunks as `models.engine.Engine` does, whichever replicas make them. At most `times` replicas
    go on, each of which must begin in `wait_s`; then the death is raised."""
    reply = SurvivingReply(replace(request, survives=times > 0 and may_survive(request)))
    died: EngineDied | None = None
    deadline = 0.0
    while True:
        left_s = max(0.0, deadline - time.monotonic()) if died else None
        try:
            async with aclosing(generate(reply.rest(), left_s)) as chunks:
                async for chunk in chunks:
                    yield reply.joined(chunk)
            return
        except EngineDied as error:
            died, times = error, times - 1
            if times < 0 or not reply.can_go_on:
                raise
            deadline = time.monotonic() + wait_s
            if reply.is_whole:
                yield reply.end()
                return
        except EngineUnavailable:
            if died is None:
                raise
            if time.monotonic() >= deadline:
                raise died from None
            await asyncio.sleep(ASK_AGAIN_S)


@dataclass(slots=True)
class SurvivingReply:
    """What is known of one reply, so that it can go on."""

    request: EngineRequest
    ids: array[int] = field(default_factory=lambda: array("I"))
    _is_begun: bool = False
    _created: bytes | None = None
    _last: EngineChunk = field(default_factory=lambda: EngineChunk(b"", TokenUsage(), finished=False))
    # Of the last chunk that had any.
    _last_data: bytes = b""
    _goes_on: bool = False
    # Of the replica that began: what others find in their caches is the reply's own.
    _cached_tokens: int | None = None

    def rest(self) -> EngineRequest:
        """The request for the replica that is next."""
        self._goes_on = bool(self._last.usage.completion_tokens)
        if self._goes_on and self._cached_tokens is None:
            self._cached_tokens = self._last.usage.cached_tokens
        return replace(self.request, said=tuple(self.ids))

    @property
    def can_go_on(self) -> bool:
        """False where more was delivered than is known by its tokens."""
        if not self.request.survives:
            return False
        if self.is_whole:
            # Its last chunk, which has all token ids, cannot be made again.
            return not self.request.tells_tokens
        return not self._is_begun or len(self.ids) > 0

    @property
    def is_whole(self) -> bool:
        """True where its end was delivered, but for the last chunk."""
        return self.request.stream and bool(_ENDED.search(self._last_data))

    def end(self) -> EngineChunk:
        """The last chunk of a reply that is whole."""
        return replace(self._last, data=b"", reply=tuple(self.ids[: self.request.keep_reply]), finished=True)

    def joined(self, chunk: EngineChunk) -> EngineChunk:
        """The chunk as one of the whole reply."""
        if not self.request.survives:
            return chunk
        data, reply = chunk.data, chunk.reply
        if not chunk.finished:
            self.ids.extend(reply)
            reply = ()
        if data and self._created is None and (found := _CREATED.search(data)):
            self._created = found[0]
        elif data and self._goes_on and self._created is not None:
            data = _CREATED.sub(self._created, data)
        usage, digest = chunk.usage, chunk.tokens_sha256
        if self._cached_tokens is not None:
            usage = replace(usage, cached_tokens=self._cached_tokens)
        if not chunk.finished and usage.total_tokens < self._last.usage.total_tokens:
            # It reads the prompt again, or has yet to make what the dead one had made and not delivered.
            usage, digest = self._last.usage, self._last.tokens_sha256
        if data:
            self._is_begun = self._is_begun or self.request.stream
            self._last_data = data
        self._last = chunk = EngineChunk(data, usage, chunk.finished, reply, digest, chunk.token_ids)
        return chunk
