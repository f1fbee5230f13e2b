"""A request's usage so far, counted from vLLM's own outputs, while they are made and before they are handed out."""

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
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
    first token only. Each choice is a request of its own to the engine, and one may find in the prefix cache what
    another has just put there: cached is what every choice found, and nothing until that is known of all.
    """

    engine_client: Any
    external_id: str
    most_tokens: int
    prompt_tokens: int = 0
    choices: int = 1
    cached_tokens: int = 0
    # Of several choices by their index. vLLM forgets the state of one that has ended, which has its cached tokens.
    states: dict[int, Any] = field(default_factory=dict)
    counted: int = 0
    # Of each choice by its index, as far as anybody has looked.
    seen: dict[int, int] = field(default_factory=dict)
    # Choices that the token limit ended.
    cut_off: set[int] = field(default_factory=set)
    failure: BaseException | None = None
    handed_over: asyncio.Future[None] = field(default_factory=_future)
    # A stream's tokens come so many together, but for the first and the last.
    tokens_at_once: int = 1
    # Held while the engine has it: of a request of many prompts, the engine is given some at a time.
    turns: AbstractAsyncContextManager[None] = field(default_factory=nullcontext)

    def hand_over(self, prompt: Any, sampling_params: Any) -> None:
        """The engine is about to be given the prompt."""
        if sampling_params.max_tokens is None or sampling_params.max_tokens > self.most_tokens:
            sampling_params.max_tokens = self.most_tokens
        if self.tokens_at_once > 1:
            sampling_params.stream_interval = self.tokens_at_once
        self.prompt_tokens = len(prompt.get("prompt_token_ids") or ())
        self.choices = sampling_params.n
        if not self.handed_over.done():
            self.handed_over.set_result(None)

    def count(self, output: Any) -> None:
        """Take in a `RequestOutput`: a delta when streaming, else the only and final one."""
        if output.prompt_token_ids is not None:
            self.prompt_tokens = len(output.prompt_token_ids)
        if self.choices == 1:
            self.cached_tokens = output.num_cached_tokens or 0
        elif len(self.states) < self.choices:
            self._find_states()
        self.counted += sum(len(choice.token_ids) for choice in output.outputs)
        self.cut_off.update(choice.index for choice in output.outputs if choice.finish_reason == "length")
        if any(choice.finish_reason == "error" for choice in output.outputs):
            self.failure = GenerationError("the engine aborted this request")

    def peek(self) -> TokenUsage:
        """Usage so far, with what the engine has generated and not yet handed out."""
        for state in self._find_states():
            self.seen[state.request_index] = state.detokenizer.num_output_tokens()
            self.prompt_tokens = state.prompt_len
            if self.choices == 1:
                self.cached_tokens = state.num_cached_tokens or 0
            for choice in ended_choices(state):
                self.seen[choice.index] = len(choice.token_ids)
        return self.usage()

    def usage(self) -> TokenUsage:
        completion = max(self.counted, sum(self.seen.values()))
        return TokenUsage(self.prompt_tokens, completion, self._cached())

    def _find_states(self) -> list[Any]:
        found = list(states_of(self.engine_client, self.external_id))
        if self.choices > 1:
            self.states.update((state.request_index, state) for state in found)
        return found

    def _cached(self) -> int:
        if self.choices == 1:
            return self.cached_tokens
        if len(self.states) < self.choices:
            return 0
        return min(state.num_cached_tokens or 0 for state in self.states.values())
