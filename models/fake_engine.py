"""A fake engine, for the fast test lane and for injecting faults: it computes nothing and says a fixed text.

`FakeEngine` keeps the `Engine` protocol and OpenAI's chunk shape, so that all else can be tested without a model;
`FakeReplicaEngine` is the same in a replica, for `engine.kind: fake`.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from itertools import chain, cycle, islice

from models.counted_tokens import PromptSource, TokenIds
from models.engine import EngineChunk, EngineFault, EngineRequest, PromptBound, ScoredReply, TokenUsage, Turn
from models.engine_kinds import EngineSpec
from models.errors import EngineError, EngineRejected, EngineUnavailable
from models.fake_forms import FAKE_FORMS, FakeForm

TEXT = "The quick brown fox jumps over the lazy dog while seven tired owls look on from their old tree."
# The reply of a served fake: it says so, and cannot be mistaken for a model's.
SERVED_TEXT = "This is a fake engine for tests. It computes nothing: it says this text to everybody."
# An engine says something every half second.
SIGN_OF_LIFE_S = 0.4
SOURCE = PromptSource("0" * 64, "1" * 64)
# Of `prompt_tokens` below: a message, and an empty text, are a token each; a part is written with four words.
WORDS_ARE_TOKENS = PromptBound(per_byte=1, per_message=2, per_part=4, fixed=0)


@dataclass(frozen=True, slots=True)
class Aborted:
    """A request whose iterator was closed or cancelled before it had finished."""

    request_id: str
    completion_tokens: int


@dataclass
class FakePrefixCache:
    """The blocks of the last prompts, each known by all that is before it, apart for each `cache_salt`."""

    block: int = 16
    most: int = 10_000
    _blocks: OrderedDict[int, None] = field(default_factory=OrderedDict)

    def take(self, cache_salt: str, tokens: Sequence[str]) -> int:
        """Store the prompt's blocks; return how many of its tokens were there: whole blocks, and never all of them."""
        found, before, hits = 0, hash(cache_salt), True
        for end in range(self.block, len(tokens), self.block):
            before = hash((before, *tokens[end - self.block : end]))
            hits = hits and before in self._blocks
            found += self.block if hits else 0
            self._blocks[before] = None
            self._blocks.move_to_end(before)
        while len(self._blocks) > self.most:
            self._blocks.popitem(last=False)
        return found


@dataclass(kw_only=True)
class FakeEngine:
    """Says `text`, one word a token, in every choice. Knobs may be turned between requests.

    It ends after the text (`stop`), at a stop string, or at the token limit (`length`); `ignore_eos` and
    `min_tokens` make it say the text again. `fails_with` is raised before the first chunk, or after
    `fails_after` tokens. `answers` unset: no replica ever takes a request. `garbage` replaces the data of every chunk.
    `context_length` is what prompt and reply may have together. `bound` is what it says of its prompts, and
    `prompt_tokens` what it counts of each when it generates, whatever it said; `tokens_of` is its tokenizer. It has a
    prefix cache, as a real one has; `cached_tokens` is what it says of that, whatever it has.
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
    cached_tokens: int | None = None
    # Of a text, or of a message's content as JSON.
    tokens_of: Callable[[str], Sequence[str]] = str.split
    prefix_cache: FakePrefixCache = field(default_factory=FakePrefixCache)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    requests: list[EngineRequest] = field(default_factory=list)
    aborted: list[Aborted] = field(default_factory=list)
    counted: list[EngineRequest] = field(default_factory=list)
    scored: list[tuple[EngineRequest, tuple[int, ...]]] = field(default_factory=list)
    score_s: float = 0.25

    async def count_tokens(self, request: EngineRequest, *, beyond_context: bool = False) -> int:
        self.counted.append(request)
        if not self.answers:
            await asyncio.Event().wait()
        self._fail_at(0)
        counted = len(_prompt(request, self.tokens_of))
        if not beyond_context:
            self._within_the_context(request, counted)
        return counted

    def prompt_bound(self) -> PromptBound | None:
        return self.bound

    async def score(self, request: EngineRequest, reply: Sequence[int]) -> ScoredReply:
        """Each token is likely by how much of the prompt's words there are, and the likeliest in every other place."""
        self.scored.append((request, tuple(reply)))
        if not self.answers:
            await asyncio.Event().wait()
        self._fail_at(0)
        if not self.is_ready:
            raise EngineUnavailable("no replica runs", retry_after_s=1)
        counted = len(_prompt(request, self.tokens_of))
        likeliest = tuple(token if place % 2 else token + counted for place, token in enumerate(reply))
        return ScoredReply(counted, (-10.0 / counted,) * len(reply), likeliest, self.score_s)

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
        prompt = _prompt(request, self.tokens_of)
        counted = len(prompt) if self.prompt_tokens is None else self.prompt_tokens
        request = self._within_the_context(request, counted)
        pieces, finish_reason = reply_pieces(self.text, request)
        choices, form = request.sequences, form_of(request)
        if self.fails_with is None or self.fails_after:
            told = _token_ids(prompt, [], choices)
            yield EngineChunk(b"", TokenUsage(counted), finished=False, tokens_sha256=told.sha256())
        found = min(counted, self.prefix_cache.take(request.cache_salt, prompt))
        cached = found if self.cached_tokens is None else self.cached_tokens
        for index, piece in enumerate(pieces):
            if index < len(request.said):
                continue
            self._fail_at(index)
            await self.sleep(self.token_s if index else self.first_token_s)
            data = form.piece(request, index, piece) if request.stream else b""
            usage = TokenUsage(counted, (index + 1) * choices, cached)
            told = _token_ids(prompt, pieces[: index + 1], choices)
            new = (len(piece),) if request.survives else ()
            yield EngineChunk(self._data(data), usage, finished=False, reply=new, tokens_sha256=told.sha256())
        self._fail_at(len(pieces))
        usage = TokenUsage(counted, len(pieces) * choices, cached)
        told = _token_ids(prompt, pieces, choices)
        reply = tuple(told.replies[0][: request.keep_reply]) if choices == 1 else ()
        digest = told.sha256()
        if request.stream and (data := form.end(request, pieces, finish_reason)):
            yield EngineChunk(self._data(data), usage, finished=False, tokens_sha256=digest)
        data, all_ids = form.last(request, pieces, finish_reason), told if request.tells_tokens else None
        yield EngineChunk(self._data(data), usage, True, reply, digest, all_ids)

    def _within_the_context(self, request: EngineRequest, counted: int) -> EngineRequest:
        """The request with as many tokens as are left for it. Raises `EngineRejected`."""
        if self.context_length is None:
            return request
        # Each of several prompts has the whole context, and this fake does not look which of them is too long.
        left = self.context_length - counted // max(1, len(request.prompts))
        if left < 1 or (request.max_tokens_field is not None and request.max_tokens > left):
            field = request.max_tokens_field if left >= 1 else "messages"
            raise EngineRejected(f"only {left} tokens are left", param=field, is_too_long=True)
        return replace(request, max_tokens=min(request.max_tokens, left))

    def _fail_at(self, tokens: int) -> None:
        if self.fails_with is not None and tokens >= self.fails_after:
            raise self.fails_with

    def _data(self, data: bytes) -> bytes:
        return data if self.garbage is None else self.garbage


@dataclass(kw_only=True)
class FakeReplicaEngine:
    """`engine` as the `models.engine.SleepableEngine` of a replica, which takes `wake_s` to wake up."""

    engine: FakeEngine = field(default_factory=FakeEngine)
    places: int = 256
    dead: bool = False
    prompt_making: None = None
    wake_s: float = 0
    _awake: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._awake.set()

    @property
    def cache_tokens(self) -> int:
        return self.engine.prefix_cache.most * self.engine.prefix_cache.block

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineChunk | EngineFault, None]:
        usage = TokenUsage()
        try:
            async with aclosing(self.engine.generate(request)) as chunks:
                async for chunk in chunks:
                    while not await self._is_awake():
                        yield EngineChunk(b"", usage, finished=False)
                    usage = chunk.usage
                    yield chunk
        except EngineError as error:
            yield EngineFault.of(error)

    async def _is_awake(self) -> bool:
        """Waits for it, and at most until it is time for a sign of life."""
        if self._awake.is_set():
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(SIGN_OF_LIFE_S):
                await self._awake.wait()
        return self._awake.is_set()

    async def sleep(self) -> None:
        self._awake.clear()

    async def wake(self) -> None:
        await asyncio.sleep(self.wake_s)
        self._awake.set()

    def pause(self, request: EngineRequest, paused: bool) -> None:
        """It has as many places as it is asked for."""

    async def count_tokens(
        self, request: EngineRequest, *, beyond_context: bool = False
    ) -> int | EngineFault:
        try:
            return await self.engine.count_tokens(request, beyond_context=beyond_context)
        except EngineError as error:
            return EngineFault.of(error)

    async def score(
        self, request: EngineRequest, reply: Sequence[int], turn: Turn
    ) -> ScoredReply | EngineFault:
        try:
            async with turn():
                return await self.engine.score(request, reply)
        except EngineError as error:
            return EngineFault.of(error)

    async def stop(self) -> None:
        self.dead = True


async def start(spec: EngineSpec) -> FakeReplicaEngine:
    """For `engine.kind: fake`; its `engine.options` are `wake_s` and the knobs of `FakeEngine`."""
    knobs = {"text": SERVED_TEXT, "context_length": spec.context_length, **spec.options}
    wake_s = knobs.pop("wake_s", 0)
    return FakeReplicaEngine(engine=FakeEngine(**knobs), wake_s=wake_s)


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


def form_of(request: EngineRequest) -> FakeForm:
    """Raises `EngineRejected` for a form that this fake does not have."""
    if request.form not in FAKE_FORMS:
        raise EngineRejected(f"the fake engine does not answer in the form {request.form!r}", param="model")
    return FAKE_FORMS[request.form]


def _token_ids(prompt: Sequence[str], pieces: Sequence[str], choices: int) -> TokenIds:
    """A word's is its length."""
    return TokenIds((tuple(map(len, prompt)),), (tuple(map(len, pieces)),) * choices, SOURCE)


def prompt_tokens(request: EngineRequest) -> int:
    """A word is a token, and each message costs one more; of a prompt of tokens, each is one."""
    return len(_prompt(request, str.split))


def _prompt(request: EngineRequest, tokens_of: Callable[[str], Sequence[str]]) -> list[str]:
    tokens: list[str] = []
    for message in request.messages:
        text = json.dumps(message.get("content", ""), ensure_ascii=False)
        tokens += [str(message.get("role")), *tokens_of(text)]
    for prompt in request.prompts:
        tokens += tokens_of(prompt) if isinstance(prompt, str) else map(str, prompt)
    return tokens
