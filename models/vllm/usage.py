"""A request's usage so far, counted from vLLM's own outputs, while they are made and before they are handed out."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from vllm.exceptions import GenerationError

from models.engine import TokenUsage
from models.vllm.insides import ended_choices, states_of


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
            self.failure = GenerationError("the engine aborted this request")

    def peek(self) -> TokenUsage:
        """Usage so far, with what the engine has generated and not yet handed out."""
        for state in states_of(self.engine_client, self.external_id):
            self.seen[state.request_index] = state.detokenizer.num_output_tokens()
            self.prompt_tokens = state.prompt_len
            self.cached_tokens = max(self.cached_tokens, state.num_cached_tokens or 0)
            for choice in ended_choices(state):
                self.seen[choice.index] = len(choice.token_ids)
        return self.usage()

    def usage(self) -> TokenUsage:
        completion = max(self.counted, sum(self.seen.values()))
        return TokenUsage(self.prompt_tokens, completion, self.cached_tokens)
