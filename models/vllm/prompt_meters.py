"""The usage of a request whose prompts are requests of their own to the engine, and how many of them it has at once."""

import asyncio
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from models.engine import EngineRequest, TokenUsage
from models.vllm.usage import UsageMeter

# Requests of one replica for each token more that a stream's come together, up to a bound.
CROWD, MOST_AT_ONCE = 32, 8


@dataclass(slots=True)
class PromptMeters:
    """A meter for each prompt, by what vLLM calls it; together they tell what one meter tells."""

    parts: Mapping[str, UsageMeter]
    handed_over: asyncio.Future[None]
    # For an echo alone the engine generates a token, which nobody gets.
    is_echo_alone: bool
    # Of the whole reply, once vLLM has told it.
    reasoning_tokens: int = 0

    @property
    def failure(self) -> BaseException | None:
        return next((part.failure for part in self.parts.values() if part.failure is not None), None)

    @failure.setter
    def failure(self, failure: BaseException | None) -> None:
        next(iter(self.parts.values())).failure = failure

    @property
    def cut_off(self) -> Set[int]:
        # One of several prompts is a completion, and calls nothing.
        return next(iter(self.parts.values())).cut_off if len(self.parts) == 1 else frozenset()

    def usage(self) -> TokenUsage:
        return self._sum([part.usage() for part in self.parts.values()])

    def peek(self) -> TokenUsage:
        return self._sum([part.peek() for part in self.parts.values()])

    def _sum(self, usages: Sequence[TokenUsage]) -> TokenUsage:
        return TokenUsage(
            sum(usage.prompt_tokens for usage in usages),
            0 if self.is_echo_alone else sum(usage.completion_tokens for usage in usages),
            sum(usage.cached_tokens for usage in usages),
            self.reasoning_tokens,
        )


def tokens_at_once(request: EngineRequest, others: int) -> int:
    """How many tokens of a stream come together where the replica has so many `others`: one by one each costs its event
    loop a tenth of a millisecond. A parser of calls reads them one by one, as vLLM tests it."""
    one_by_one = not request.stream or bool(request.options.get("tools"))
    return 1 if one_by_one else min(MOST_AT_ONCE, 1 + others // CROWD)


def meters_of(
    request: EngineRequest, engine_ids: Sequence[str], client: Any, *, places: int, at_once: int = 1
) -> PromptMeters:
    """The meters of a request that the engine has under these ids."""
    handed_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    turns = asyncio.Semaphore(request.prompts_at_once(places))
    parts = {
        engine_id: UsageMeter(
            client,
            engine_id,
            max(1, request.max_tokens),
            handed_over=handed_over,
            turns=turns,
            tokens_at_once=at_once,
        )
        for engine_id in engine_ids
    }
    return PromptMeters(parts, handed_over, is_echo_alone=request.max_tokens == 0)
