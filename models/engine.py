"""What is asked of an engine, in its replica and by the service: bytes with the usage so far, and a prompt's tokens.

The engine's side builds the bytes, where the typed outputs are at hand; the service forwards them untouched
and keeps the last usage, so that a caller who leaves is billed for what was generated.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from models.errors import EngineError, EngineFailed, EngineRejected, EngineUnavailable
from models.prompt_bound import PromptBound, PromptMaking


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
    # The name under which the caller gave the limit, for an engine's error about it. None: the caller gave none, and
    # `max_tokens` only caps what the prompt leaves of the context.
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] | None = "max_tokens"
    # Who shares the engine's places: a project, and its weight relative to others.
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
class Embeddings:
    """The vectors of several texts, in their order."""

    vectors: tuple[tuple[float, ...], ...]
    usage: TokenUsage


@dataclass(frozen=True, slots=True)
class EngineFault:
    """An engine's refusal or failure as a value, since exceptions with fields do not survive a change of process."""

    kind: Literal["rejected", "unavailable", "failed"]
    message: str
    param: str | None = None
    retry_after_s: int = 1

    def error(self) -> EngineError:
        """The exception that this fault represents."""
        if self.kind == "rejected":
            return EngineRejected(self.message, param=self.param)
        if self.kind == "unavailable":
            return EngineUnavailable(self.message, retry_after_s=self.retry_after_s)
        return EngineFailed(self.message)

    @classmethod
    def of(cls, error: EngineError) -> EngineFault:
        """The fault that represents an exception."""
        if isinstance(error, EngineRejected):
            return cls("rejected", error.message, error.param)
        if isinstance(error, EngineUnavailable):
            return cls("unavailable", str(error), retry_after_s=error.retry_after_s)
        return cls("failed", str(error))


class ReplicaEngine(Protocol):
    """One started engine in its replica: what a backend offers. `models.engine_kinds` has a row for each."""

    @property
    def places(self) -> int:
        """How many sequences it works on at once."""

    @property
    def dead(self) -> bool:
        """Its health, looked at ten times a second: whether it can never answer again, and another must be started."""

    @property
    def prompt_making(self) -> PromptMaking | None:
        """What it makes a prompt of a conversation with; None where a prompt cannot be bounded by that."""

    def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        """Yield at least one item; the last one, and only the last, is a fault or has `finished`.

        Something comes at least every half second, if only an empty chunk. Closing the iterator aborts the generation.
        """

    async def count_tokens(self, request: EngineRequest) -> int | EngineFault:
        """The tokens of the prompt as `generate` would feed it; nothing is generated."""

    async def stop(self) -> None:
        """End what it runs, also where it is dead already."""


@runtime_checkable
class Embeds(Protocol):
    """What an engine offers besides `ReplicaEngine` if its model makes vectors of texts: ask with `isinstance`."""

    async def embed(self, texts: Sequence[str]) -> Embeddings | EngineFault:
        """A vector for each text, all of one length, and the tokens of all texts."""


class Engine(Protocol):
    """One model's engine as the HTTP service has it, wherever its replicas run."""

    def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        """Yield at least one chunk; the last one, and only the last, has `finished`.

        Closing the iterator aborts the generation. Raises `EngineRejected`, `EngineUnavailable` or
        `EngineFailed`, before the first chunk or after any.
        """

    def prompt_bound(self) -> PromptBound | None:
        """What is proven of this model's prompts; None while nothing is known of it."""

    async def count_tokens(self, request: EngineRequest) -> int:
        """The tokens of the prompt as `generate` would feed it, template and tools included; nothing is generated.

        Raises what `generate` raises.
        """

    async def ready(self) -> bool:
        """Say whether a replica is up and healthy, without starting one."""
