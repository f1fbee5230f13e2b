"""Counts a request's tokens from vLLM's own outputs, while they are made and before they are handed out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from vllm.exceptions import GenerationError
from vllm.v1.structured_output.backend_types import StructuredOutputOptions
from vllm.v1.structured_output.request import get_structured_output_key

from models.engine import TokenUsage
from models.grammar.trials import GrammarTrials, Kind

# The grammars that a caller's schemas become. What else there is, callers cannot ask for.
_TRIED: dict[StructuredOutputOptions, Kind] = {
    StructuredOutputOptions.JSON: "json",
    StructuredOutputOptions.STRUCTURAL_TAG: "structural_tag",
}


def _future() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


@dataclass(slots=True)
class UsageMeter:
    """One request. Its reply gets no more than `most_tokens` for each choice, whatever the engine was asked for.

    From `handed_over` on the engine works on the prompt, or has it in its queue: which of the two, vLLM says with the
    first token only.
    """

    engine_client: Any
    external_id: str
    most_tokens: int
    prompt_tokens: int = 0
    cached_tokens: int = 0
    counted: int = 0
    # Of each choice by its index, as far as anybody has looked.
    seen: dict[int, int] = field(default_factory=dict)
    failure: BaseException | None = None
    handed_over: asyncio.Future[None] = field(default_factory=_future)

    def hand_over(self, prompt: Any, sampling_params: Any) -> None:
        """The engine is about to be given the prompt."""
        if sampling_params.max_tokens is None or sampling_params.max_tokens > self.most_tokens:
            sampling_params.max_tokens = self.most_tokens
        self.prompt_tokens = len(prompt.get("prompt_token_ids") or ())
        if not self.handed_over.done():
            self.handed_over.set_result(None)

    def count(self, output: Any) -> None:
        """Take in a `RequestOutput`: a delta when streaming, else the only and final one."""
        if output.prompt_token_ids is not None:
            self.prompt_tokens = len(output.prompt_token_ids)
        self.cached_tokens = max(self.cached_tokens, output.num_cached_tokens or 0)
        self.counted += sum(len(choice.token_ids) for choice in output.outputs)
        if any(choice.finish_reason == "error" for choice in output.outputs):
            self.failure = GenerationError("the engine gave this request up")

    def peek(self) -> TokenUsage:
        """Usage so far, with what the engine has generated and not yet handed out."""
        processor = self.engine_client.output_processor
        for internal_id in processor.external_req_ids.get(self.external_id, ()):
            state = processor.request_states.get(internal_id)
            if state is None or state.detokenizer is None:
                continue
            self.seen[state.request_index] = state.detokenizer.num_output_tokens()
            self.prompt_tokens = state.prompt_len
            self.cached_tokens = max(self.cached_tokens, state.num_cached_tokens or 0)
            self._see_ended(state.parent_req)
        return self.usage()

    def _see_ended(self, parent: Any) -> None:
        """Choices that have ended wait with their parent for the last one, and are nowhere else."""
        for choice in parent.output_aggregator if parent is not None else ():
            if choice is not None:
                self.seen[choice.index] = len(choice.token_ids)

    def usage(self) -> TokenUsage:
        completion = max(self.counted, sum(self.seen.values()))
        return TokenUsage(self.prompt_tokens, completion, self.cached_tokens)


class CountingClient:
    """vLLM's engine client, with each request's outputs passing its meter on their way."""

    def __init__(self, client: Any, trials: GrammarTrials) -> None:
        self._client = client
        self._trials = trials
        self.meters: dict[str, UsageMeter] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def generate(
        self, prompt: Any, sampling_params: Any, request_id: str, **options: Any
    ) -> AsyncGenerator[Any, None]:
        meter = self.meters[request_id]
        try:
            # Here vLLM has made one grammar of the request's schema or tools, and the engine has not seen it.
            await self._try_grammar(sampling_params)
            meter.hand_over(prompt, sampling_params)
            async with aclosing(
                self._client.generate(prompt, sampling_params, request_id, **options)
            ) as outputs:
                async for output in outputs:
                    meter.count(output)
                    yield output
        except Exception as error:
            meter.failure = error
            raise

    async def _try_grammar(self, sampling_params: Any) -> None:
        if sampling_params.structured_outputs is None:
            return
        kind, spec = get_structured_output_key(sampling_params.structured_outputs)
        if kind in _TRIED:
            await self._trials.check(_TRIED[kind], spec)
