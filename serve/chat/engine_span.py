"""The span of a request's time with its engine: its wait and its work, by the names of the GenAI conventions."""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType

from models.engine import EngineChunk, EngineRequest
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
