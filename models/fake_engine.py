"""A fake engine, for the fast test lane and for injecting faults: it computes nothing and says a fixed text.

`FakeEngine` keeps the `Engine` protocol and OpenAI's chunk shape, so that all else can be tested without a model;
`FakeReplicaEngine` is the same in a replica, for `engine.kind: fake`.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import chain, cycle, islice
from typing import Any

from models.engine import Embeddings, EngineChunk, EngineFault, EngineRequest, TokenUsage
from models.engine_kinds import EngineSpec
from models.errors import EngineError, EngineRejected
from models.prompt_bound import PromptBound

TEXT = "The quick brown fox jumps over the lazy dog while seven tired owls look on from their old tree."
# The reply of a served fake: it says so, and cannot be mistaken for a model's.
SERVED_TEXT = "This is a fake engine for tests. It computes nothing: it says this text to everybody."
CREATED = 1_700_000_000
# Of `prompt_tokens` below: a message, and an empty text, are a token each; a part is written with four words.
WORDS_ARE_TOKENS = PromptBound(per_byte=1, per_message=2, per_part=4, fixed=0)


@dataclass(frozen=True, slots=True)
class Aborted:
    """A request whose iterator was closed or cancelled before it had finished."""

    request_id: str
    completion_tokens: int


@dataclass(kw_only=True)
class FakeEngine:
    """Says `text`, one word a token, in every choice. Knobs may be turned between requests.

    It ends after the text (`stop`), at a stop string, or at the token limit (`length`); `ignore_eos` and
    `min_tokens` make it say the text again. `fails_with` is raised before the first chunk, or after
    `fails_after` tokens. `answers` unset: no replica ever takes a request. `garbage` replaces the data of every chunk.
    `context_length` is what prompt and reply may have together. `bound` is what it says of its prompts, and
    `prompt_tokens` what it counts of each when it generates, whatever it said.
    """

    text: str = TEXT
    first_token_s: float = 0
    token_s: float = 0
    fails_with: EngineError | None = None
    fails_after: int = 0
    answers: bool = True
    garbage: bytes | None = None
    is_ready: bool = True
    context_length: int | None = None
    bound: PromptBound | None = WORDS_ARE_TOKENS
    prompt_tokens: int | None = None
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    requests: list[EngineRequest] = field(default_factory=list)
    aborted: list[Aborted] = field(default_factory=list)
    counted: list[EngineRequest] = field(default_factory=list)

    async def count_tokens(self, request: EngineRequest) -> int:
        self.counted.append(request)
        if not self.answers:
            await asyncio.Event().wait()
        self._fail_at(0)
        return prompt_tokens(request)

    def prompt_bound(self) -> PromptBound | None:
        return self.bound

    async def ready(self) -> bool:
        return self.is_ready

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        self.requests.append(request)
        usage, ended = TokenUsage(), False
        try:
            async with aclosing(self._chunks(request)) as chunks:
                async for chunk in chunks:
                    # Noted before the yield, which is where a closed iterator ends.
                    usage, ended = chunk.usage, chunk.finished
                    yield chunk
        except EngineError:
            ended = True
            raise
        finally:
            if not ended:
                self.aborted.append(Aborted(request.request_id, usage.completion_tokens))

    async def _chunks(self, request: EngineRequest) -> AsyncGenerator[EngineChunk, None]:
        if not self.answers:
            await asyncio.Event().wait()
        counted = prompt_tokens(request) if self.prompt_tokens is None else self.prompt_tokens
        request = self._within_the_context(request, counted)
        pieces, finish_reason = reply_pieces(self.text, request)
        choices = request.options.get("n", 1)
        if self.fails_with is None or self.fails_after:
            yield EngineChunk(b"", TokenUsage(counted), finished=False)
        for index, piece in enumerate(pieces):
            self._fail_at(index)
            await self.sleep(self.token_s if index else self.first_token_s)
            delta = {"content": piece} if index else {"role": "assistant", "content": piece}
            data = _events(request, choices, delta, None) if request.stream else b""
            usage = TokenUsage(counted, (index + 1) * choices)
            yield EngineChunk(self._data(data), usage, finished=False)
        self._fail_at(len(pieces))
        if request.stream:
            data = _events(request, choices, {}, finish_reason)
        else:
            data = _completion(request, choices, "".join(pieces), finish_reason)
        yield EngineChunk(self._data(data), TokenUsage(counted, len(pieces) * choices), finished=True)

    def _within_the_context(self, request: EngineRequest, counted: int) -> EngineRequest:
        """The request with as many tokens as are left for it. Raises `EngineRejected`."""
        if self.context_length is None:
            return request
        left = self.context_length - counted
        if left < 1 or (request.max_tokens_field is not None and request.max_tokens > left):
            field = request.max_tokens_field if left >= 1 else "messages"
            raise EngineRejected(f"only {left} tokens are left", param=field)
        return replace(request, max_tokens=min(request.max_tokens, left))

    def _fail_at(self, tokens: int) -> None:
        if self.fails_with is not None and tokens >= self.fails_after:
            raise self.fails_with

    def _data(self, data: bytes) -> bytes:
        return data if self.garbage is None else self.garbage


@dataclass(kw_only=True)
class FakeReplicaEngine:
    """`engine` as the `models.engine.ReplicaEngine` of a replica; it also `Embeds`, each text as its length."""

    engine: FakeEngine = field(default_factory=FakeEngine)
    places: int = 256
    dead: bool = False
    prompt_making: None = None

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        try:
            async with aclosing(self.engine.generate(request)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except EngineError as error:
            yield EngineFault.of(error)

    async def count_tokens(self, request: EngineRequest) -> int | EngineFault:
        try:
            return await self.engine.count_tokens(request)
        except EngineError as error:
            return EngineFault.of(error)

    async def embed(self, texts: Sequence[str]) -> Embeddings | EngineFault:
        words = sum(len(text.split()) for text in texts)
        return Embeddings(tuple((float(len(text)),) for text in texts), TokenUsage(words))

    async def stop(self) -> None:
        self.dead = True


async def start(spec: EngineSpec) -> FakeReplicaEngine:
    """For `engine.kind: fake`; its `engine.options` are knobs of `FakeEngine`."""
    knobs = {"text": SERVED_TEXT, "context_length": spec.context_length, **spec.options}
    return FakeReplicaEngine(engine=FakeEngine(**knobs))


def reply_pieces(text: str, request: EngineRequest) -> tuple[list[str], str]:
    """The reply's tokens and why it ends; a token that a stop string consumed is counted and empty."""
    words = [word if index == 0 else f" {word}" for index, word in enumerate(text.split())]
    options = request.options
    least = request.max_tokens if options.get("ignore_eos") else options.get("min_tokens", 0)
    if least > len(words):
        again = cycle([f" {word}" for word in text.split()])
        words = list(islice(chain(words, again), least))
    pieces: list[str] = []
    spoken = ""
    for word in words[: request.max_tokens]:
        before, spoken = spoken, spoken + word
        cuts = [at for stop in options.get("stop", ()) if (at := spoken.find(stop)) >= 0]
        if cuts:
            # What an earlier token said of the stop string stays said: this fake holds nothing back.
            return [*pieces, spoken[len(before) : max(min(cuts), len(before))]], "stop"
        pieces.append(word)
    return pieces, "stop" if len(pieces) == len(words) and not options.get("ignore_eos") else "length"


def prompt_tokens(request: EngineRequest) -> int:
    """A word is a token, and each message costs one more."""
    texts = [json.dumps(message.get("content", ""), ensure_ascii=False) for message in request.messages]
    return sum(len(text.split()) + 1 for text in texts)


def _head(request: EngineRequest, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{request.request_id}",
        "object": kind,
        "created": CREATED,
        "model": request.model_id,
    }


def _events(request: EngineRequest, choices: int, delta: dict[str, Any], finish_reason: str | None) -> bytes:
    """One SSE event for each choice."""
    events = []
    for index in range(choices):
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        chunk = {**_head(request, "chat.completion.chunk"), "choices": [choice]}
        events.append(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    return b"".join(events)


def _completion(request: EngineRequest, choices: int, text: str, finish_reason: str) -> bytes:
    message = {"role": "assistant", "content": text, "refusal": None}
    listed = [
        {"index": index, "message": message, "logprobs": None, "finish_reason": finish_reason}
        for index in range(choices)
    ]
    return json.dumps({**_head(request, "chat.completion"), "choices": listed}).encode()
