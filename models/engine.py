"""What the service asks of an engine: bytes with the usage so far, and a prompt's tokens.

The engine's side builds the bytes, where the typed outputs are at hand; the service forwards them untouched
and keeps the last usage, so that a caller who leaves is billed for what was generated.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from models.errors import EngineError, EngineFailed, EngineRejected, EngineUnavailable

if TYPE_CHECKING:
    from models.prompt_bound import PromptBound


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of one request so far. `cached_tokens` are the prompt tokens found in the prefix cache."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One chat request, checked and stripped of everything that may not reach an engine.

    `options` holds OpenAI names (`temperature`, `stop`, …) with JSON values; `cache_salt` parts the prefix
    cache between workspaces, since a shared one leaks prompts by timing.
    """

    request_id: str
    model_id: str
    messages: tuple[Mapping[str, Any], ...]
    max_tokens: int
    stream: bool
    cache_salt: str
    options: Mapping[str, Any] = field(default_factory=dict)
    # The name under which the caller gave the limit, for an engine's complaint about it. None: nobody gave one, and it
    # is the most that the reply may have of what the prompt leaves.
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] | None = "max_tokens"
    # Who shares the engine's places: a project, and how much of them it is to have beside others.
    project_id: str = ""
    project_weight: int = 1


@dataclass(frozen=True, slots=True)
class EngineChunk:
    """A piece of the reply.

    `data` is whole SSE events (`data: {…}\\n\\n`, never `[DONE]`, never a usage event) when streaming, and
    else the reply's JSON object in the last chunk; it is empty when a chunk only reports progress.
    `usage` is the total so far, never less than in the chunk before. The first one comes when the engine is given the
    prompt, and has its tokens: from then on work is done for it.
    """

    data: bytes
    usage: TokenUsage
    finished: bool


@dataclass(frozen=True, slots=True)
class EngineFault:
    """An engine's refusal or failure as a value, since exceptions with fields do not survive every process hop."""

    kind: Literal["rejected", "unavailable", "failed"]
    message: str
    param: str | None = None
    retry_after_s: int = 1

    def error(self) -> EngineError:
        """The exception that this fault stands for."""
        if self.kind == "rejected":
            return EngineRejected(self.message, param=self.param)
        if self.kind == "unavailable":
            return EngineUnavailable(self.message, retry_after_s=self.retry_after_s)
        return EngineFailed(self.message)


class Engine(Protocol):
    """One model's engine, wherever it runs."""

    def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        """Yield at least one chunk; the last one, and only the last, has `finished`.

        Closing the iterator aborts the generation. Raises `EngineRejected`, `EngineUnavailable` or
        `EngineFailed`, before the first chunk or after any.
        """
        ...

    def prompt_bound(self) -> PromptBound | None:
        """What is proven of this model's prompts; None while nothing is known of it."""
        ...

    async def count_tokens(self, request: EngineRequest) -> int:
        """The tokens of the prompt as `generate` would feed it, template and tools included; nothing is generated.

        Raises what `generate` raises.
        """
        ...

    async def ready(self) -> bool:
        """Say whether a replica is up and healthy, without starting one."""
        ...
