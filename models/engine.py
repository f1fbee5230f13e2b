"""The engine protocols, in a replica and for the service: requests in, bytes with the usage so far out.

The engine's side builds the bytes, where the typed outputs are at hand; the service forwards them untouched
and keeps the last usage, so that a caller who leaves is billed for what was generated. What a prompt costs at most
is bound from its bytes alone, for models of which that is proven.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol

from models.counted_tokens import TokenIds
from models.errors import (
    EngineDied,
    EngineError,
    EngineFailed,
    EngineRejected,
    EngineTimedOut,
    EngineUnavailable,
)
from models.template.values import ROLE_BYTES


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of one request so far. `cached_tokens` are the prompt tokens found in the prefix cache, and
    `reasoning_tokens` the completion tokens that are no part of the answer, known once the reply is whole."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


# In `form_options`: the reply goes on where the last message, the assistant's, ends.
CONTINUES = "continue_final_message"
# Texts at which a generation ends: the most that an engine is asked to take.
MAX_STOP_STRINGS = 64
# The choices that every engine takes, one with few places in turns.
LEAST_CHOICES = 16

ServiceTier = Literal["default", "flex", "priority"]
# A chat completion, a completion of bare prompts, OpenAI's response, Anthropic's message.
ReplyFormName = Literal["chat", "completion", "response", "message"]


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
    # Of an adapter that the engine may have been started without.
    adapter_folder: str = ""
    # Who shares the engine's places: a project, and its weight relative to others.
    project_id: str = ""
    project_weight: int = 1
    # Nobody waits for it: it lets all others go first.
    background: bool = False
    # The last chunk has so many token ids of the reply, for `ReplicaEngine.score`; of one choice alone.
    keep_reply: int = 0
    # The last chunk has all token ids.
    tells_tokens: bool = False
    # On its way to a replica: nothing is generated, but these token ids of a reply are scored.
    score: tuple[int, ...] = ()
    # In which form the engine answers. `prompts` are a completion's, which has no messages; `form_options` is what only
    # this form knows, under its own names and checked as `options` are.
    form: ReplyFormName = "chat"
    prompts: tuple[str | tuple[int, ...], ...] = ()
    form_options: Mapping[str, Any] = field(default_factory=dict)
    # The span that it is part of, as W3C headers for an engine that traces; empty where it is not traced.
    trace_headers: Mapping[str, str] = field(default_factory=dict)
    # Its chunks have the token ids that they deliver, so that another replica can go on where one died; `said` is what
    # has been delivered of the reply already (`models.surviving`).
    survives: bool = False
    said: tuple[int, ...] = ()
    # `priority` goes before what the project asks otherwise, `flex` takes what all others leave.
    tier: ServiceTier = "default"

    def __setstate__(self, state: Sequence[Any]) -> None:
        """A replica may be asked by an ingress of a version before, which has not the last fields, or of one after."""
        known = EngineRequest(*state[: len(fields(self))])
        for each in fields(self):
            object.__setattr__(self, each.name, getattr(known, each.name))

    @property
    def sequences(self) -> int:
        """Sequences that the engine runs for it: each choice of each prompt."""
        return max(1, len(self.prompts)) * self.choices

    @property
    def listed_at_each(self) -> int:
        """Log probabilities that are listed where each of its sequences has one token more."""
        if self.form == "completion":
            top = self.form_options.get("logprobs")
        else:
            top = (self.options.get("top_logprobs") or 0) if self.options.get("logprobs") else None
        return 0 if top is None else self.sequences * (1 + int(top))

    def prompts_at_once(self, places: int) -> int:
        """Prompts of this request that an engine with so many places works on at once: they take a quarter of it, so
        that one request does not keep all others waiting."""
        return max(1, places // 4 // self.choices)

    def places(self, places: int) -> int:
        """The places of an engine that it takes up."""
        return min(max(1, len(self.prompts)), self.prompts_at_once(places)) * self.choices

    @staticmethod
    def most_choices(places: int) -> int:
        """The most choices of a prompt that an engine with so many places takes: more would keep it from all others."""
        return max(LEAST_CHOICES, places // 2)

    @property
    def choices(self) -> int:
        """Choices of each prompt."""
        return int(self.options.get("n") or 1)


# These put more into a prompt than its messages' texts, or parse them and print them again.
REWRITING_OPTIONS = ("tools", "chat_template_kwargs", "reasoning_effort")
PLAIN_FIELDS = frozenset({"role", "content"})


@dataclass(frozen=True, slots=True)
class PromptMaking:
    """Template and tokenizer of a model: the template's source, whether it gets contents as lists (`parts`), and the
    tokenizer's file."""

    template: str
    parts: bool
    special_tokens: Mapping[str, str]
    tokenizer: str


@dataclass(frozen=True, slots=True)
class PromptBound:
    """Tokens for each byte of text, for each message, for each part of a content, and for each prompt."""

    per_byte: int
    per_message: int
    per_part: int
    fixed: int

    def of(self, request: EngineRequest) -> int | None:
        """A count that the prompt's tokens cannot pass; None for a request that is more than roles and texts."""
        if any(name in request.options for name in REWRITING_OPTIONS):
            return None
        size = parts = 0
        for message in request.messages:
            if not message.keys() <= PLAIN_FIELDS or len(message["role"].encode()) > ROLE_BYTES:
                return None
            texts = _texts(message["content"])
            if texts is None:
                return None
            size += sum(len(text.encode()) for text in texts)
            parts += len(texts)
        return (
            self.per_byte * size
            + self.per_message * len(request.messages)
            + self.per_part * parts
            + self.fixed
        )


def _texts(content: str | list[Mapping[str, Any]]) -> list[str] | None:
    if isinstance(content, str):
        return [content]
    texts = [part["text"] for part in content if part["type"] == "text"]
    return texts if len(texts) == len(content) else None


@dataclass(frozen=True, slots=True)
class EngineChunk:
    """A piece of the reply.

    `data` is whole SSE events (`data: {…}\\n\\n`, never `[DONE]`, never a usage event) when streaming, and
    else the reply's JSON object in the last chunk; it is empty when a chunk only reports progress. A stream of
    responses or messages has its closing events, which tell its usage, in its last chunk: the service completes them.
    `usage` is the total so far, never less than in the chunk before. The first one comes when the engine is given the
    prompt, and has its tokens: from then on work is done for it. `tokens_sha256` is of the tokens that `usage` counts.
    `reply`: token ids, of the last chunk where the request keeps them, of one before it those that it delivers where
    the request survives; `token_ids`: all, where it asks for them.
    """

    data: bytes
    usage: TokenUsage
    finished: bool
    reply: tuple[int, ...] = ()
    tokens_sha256: str | None = None
    token_ids: TokenIds | None = None


@dataclass(frozen=True, slots=True)
class ScoredReply:
    """A reply's tokens after a prompt of `prompt_tokens`: the log probability of each, and the likeliest token in its
    place. `engine_s` is what the engine took, waiting beside other requests included."""

    prompt_tokens: int
    log_probs: tuple[float, ...]
    likeliest: tuple[int, ...]
    engine_s: float = 0.0


@dataclass(frozen=True, slots=True)
class EngineFault:
    """An engine's refusal or failure as a value, since exceptions with fields do not survive a change of process."""

    kind: Literal["rejected", "unavailable", "timed_out", "failed", "died"]
    message: str
    param: str | None = None
    retry_after_s: int = 1
    # Of a rejection: prompt and reply do not fit the model's context.
    is_too_long: bool = False

    def error(self) -> EngineError:
        """The exception that this fault represents."""
        if self.kind == "rejected":
            return EngineRejected(self.message, param=self.param, is_too_long=self.is_too_long)
        if self.kind == "timed_out":
            return EngineTimedOut(self.message, retry_after_s=self.retry_after_s)
        if self.kind == "unavailable":
            return EngineUnavailable(self.message, retry_after_s=self.retry_after_s)
        return EngineDied(self.message) if self.kind == "died" else EngineFailed(self.message)

    @classmethod
    def of(cls, error: EngineError) -> EngineFault:
        """The fault that represents an exception."""
        if isinstance(error, EngineRejected):
            return cls("rejected", error.message, error.param, is_too_long=error.is_too_long)
        if isinstance(error, EngineUnavailable):
            kind: Literal["timed_out", "unavailable"] = (
                "timed_out" if isinstance(error, EngineTimedOut) else "unavailable"
            )
            return cls(kind, str(error), retry_after_s=error.retry_after_s)
        return cls("died" if isinstance(error, EngineDied) else "failed", str(error))


# Entered for each piece of work that nobody waits for: it begins when nobody else wants the engine.
Turn = Callable[[], AbstractAsyncContextManager[None]]


class ReplicaEngine(Protocol):
    """One started engine in its replica: what a backend offers. `models.engine_kinds` has a row for each."""

    @property
    def places(self) -> int:
        """Sequences that it works on at once."""

    @property
    def cache_tokens(self) -> int | None:
        """Tokens that its prefix cache holds, 0 where it has none; None where it cannot say."""

    @property
    def dead(self) -> bool:
        """Its health, looked at ten times a second: whether it can never answer again, and another must be started."""

    @property
    def prompt_making(self) -> PromptMaking | None:
        """Template and tokenizer that make its prompts; None where a prompt cannot be bounded by them."""

    def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        """Yield at least one item; the last one, and only the last, is a fault or has `finished`.

        Something comes at least every half second, if only an empty chunk. Closing the iterator aborts the generation.
        """

    def pause(self, request: EngineRequest, paused: bool) -> None:
        """Let a request that runs give its places to one that waits, or (False) keep them from now on. A paused one
        goes on where it was when there is room for it, and its reply is the same. Nothing, where the engine cannot."""

    async def count_tokens(
        self, request: EngineRequest, *, beyond_context: bool = False
    ) -> int | EngineFault:
        """The tokens of the prompt as `generate` would feed it; nothing is generated.

        A prompt that leaves no room for its reply is refused, but not where `beyond_context` asks how long it is.
        """

    async def score(
        self, request: EngineRequest, reply: Sequence[int], turn: Turn
    ) -> ScoredReply | EngineFault:
        """The tokens of a reply, one by one, as if they had been generated after the request's prompt.

        The work is done in pieces of a few dozen milliseconds, each in a `turn`, and takes no more memory than a step
        does anyway.
        """

    async def stop(self) -> None:
        """End what it runs, also where it is dead already."""


class SleepableEngine(ReplicaEngine, Protocol):
    """One that can give up the memory of its GPUs for a while, so that another has it."""

    async def sleep(self) -> None:
        """Give it up, and return when it is free. What runs is paused, what is asked from now on waits, and both go on
        after `wake`; the replies are the same. Prompts can be counted meanwhile."""

    async def wake(self) -> None:
        """Take it back, once it is free again, and return when the engine works."""


class Engine(Protocol):
    """One model's engine as the HTTP service has it, wherever its replicas run."""

    def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        """Yield at least one chunk; the last one, and only the last, has `finished`.

        Closing the iterator aborts the generation. Raises `EngineRejected`, `EngineUnavailable` or
        `EngineFailed`, before the first chunk or after any.
        """

    def prompt_bound(self) -> PromptBound | None:
        """The bound that is proven of this model's prompts; None while nothing is known of it."""

    async def count_tokens(self, request: EngineRequest, *, beyond_context: bool = False) -> int:
        """The tokens of the prompt as `generate` would feed it, template and tools included; nothing is generated.

        Raises what `generate` raises, for a prompt that is too long as well; with `beyond_context` that one is counted
        too.
        """

    async def score(self, request: EngineRequest, reply: Sequence[int]) -> ScoredReply:
        """The reply's tokens after the request's prompt, in the time that nobody else wants; the caller bounds it.

        Raises what `generate` raises; `EngineUnavailable` where no replica runs: none is started for it.
        """

    async def ready(self) -> bool:
        """Say whether a replica is up and healthy, without starting one."""
