"""The engine's reply to one admitted and held request: checked, and forwarded as long as what it uses is paid for."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from billing.usage import MeteringStatus
from models.engine import Engine, EngineChunk, EngineRequest, TokenUsage
from models.errors import EngineFailed
from serve.logs.lines import current_notes
from serve.metrics.charged_requests import ObservedChat
from serve.money.admission import Admitted
from serve.money.held_request import AlsoWrite, HeldRequest, MoreThanHeld, Receipt
from serve.money.prices import charged_fields
from serve.prompt_compression.compressed_chat import CompressedChat, compression_fields, compression_header
from serve.tracing.spans import step


class EngineSpan:
    """Begun when the engine is asked; a step of it, `queue`, ends when the engine is given the prompt: a replica was
    found or started, it was the project's turn, the prompt was rendered and read. `request` carries it to the engine.
    """

    def __init__(self, request: EngineRequest) -> None:
        operation = "text_completion" if request.form == "completion" else "chat"
        self._span = step(f"{operation} {request.model_id}", "client")
        self._queue = self._span.child("queue")
        self._waits = True
        self.request = request
        if self._span.trace_id is None:
            return
        self.request = replace(request, trace_headers=self._span.headers())
        self._span.set("gen_ai.operation.name", operation)
        self._span.set("gen_ai.provider.name", "pith")
        self._span.set("gen_ai.request.model", request.model_id)
        self._span.set("gen_ai.request.max_tokens", request.max_tokens)

    def see(self, chunk: EngineChunk) -> None:
        """A sign of life: the first says that it waits no longer, and the last one what was used."""
        if self._waits:
            self._waits = False
            self._queue.end()
        if chunk.finished:
            usage = chunk.usage
            self._span.set("gen_ai.usage.input_tokens", usage.prompt_tokens)
            self._span.set("gen_ai.usage.output_tokens", usage.completion_tokens)
            self._span.set("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens)
            # Whoever reads the chunks stops here, and does not come back for the end.
            self._span.end()

    def __enter__(self) -> EngineSpan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._waits:
            self._queue.__exit__(kind, error, trace)
        self._span.__exit__(kind, error, trace)


logger = logging.getLogger("pith.chat")


@dataclass(frozen=True, slots=True)
class EngineReply:
    """Iterate `chunks`, then settle what is `held`."""

    engine: Engine
    request: EngineRequest
    admitted: Admitted
    held: HeldRequest
    observed: ObservedChat
    # The compressed prompt, if compression was asked for.
    compressed: CompressedChat | None = None

    async def chunks(self) -> AsyncGenerator[EngineChunk, None]:
        """The engine's chunks; their usage is noted. Raises what `Engine.generate` raises."""
        notes = current_notes()
        if notes is not None:
            notes.ask_engine()
        with EngineSpan(self.request) as span:
            async with aclosing(self.engine.generate(span.request)) as chunks:
                async for chunk in chunks:
                    if notes is not None:
                        notes.see(chunk.usage.completion_tokens)
                    span.see(chunk)
                    yield self._paid(chunk)

    def _paid(self, chunk: EngineChunk) -> EngineChunk:
        """A chunk whose usage is noted. Raises `EngineFailed` where it is more than was held."""
        try:
            self.held.use(chunk.usage)
        except MoreThanHeld:
            raise self._exceeded(chunk.usage) from None
        if self.compressed is not None and chunk.usage.prompt_tokens:
            self.compressed.begin_aside()
        return chunk

    async def settle(self, also_write: AlsoWrite | None = None) -> Receipt:
        """Settle a completed reply. Raises what `HeldRequest.settle` raises."""
        if self.compressed is not None:
            await self.compressed.finish_aside()
            await self.compressed.wait_for_payers()
        return await self.held.settle("completed", also_write=also_write)

    def headers(self, status: MeteringStatus) -> dict[str, str]:
        return self.admitted.reply_headers(status) | compression_header(self.compressed)

    def charged(self, receipt: Receipt) -> dict[str, Any]:
        """The reply's `usage` and `service`."""
        fields = charged_fields(receipt)
        if self.compressed is not None:
            fields["service"]["compression"] = compression_fields(self.compressed, receipt)
        return fields

    def _exceeded(self, usage: TokenUsage) -> EngineFailed:
        self.observed.exceed()
        model_id = self.request.model_id
        logger.critical("%s: usage %r exceeds the hold %r", model_id, usage, self.held.most)
        return EngineFailed(f"{model_id}: the engine counted more tokens than its stated maximum")

    def begin_delivery(self, first: EngineChunk) -> None:
        """Call it before the first byte of a stream is sent. Raises `EngineFailed` if it is not a stream of events."""
        if not first.data.startswith((b"data: {", b"event: ")):
            raise EngineFailed("the engine did not return a stream of server-sent events")
        self.held.delivered = True
        self.observed.deliver(first.usage.completion_tokens)
