"""vLLM's engine client with meters, which count a request's usage from vLLM's outputs before they are handed out."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence, Set
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from vllm.exceptions import GenerationError
from vllm.sampling_params import RequestOutputKind

from models.counted_tokens import (
    UNKNOWN_SOURCE,
    GrowingReply,
    PromptSource,
    TokenIds,
    ids_sha256,
    joined_sha256,
)
from models.engine import EngineChunk, EngineRequest, TokenUsage
from models.grammar.trials import GrammarTrials, Kind, TrialTerms, TrialTurns
from models.vllm.going_on import going_on_from
from models.vllm.insides import StructuredOutputOptions, any_whitespace, ended_choices, grammar_key, states_of
from models.vllm.lending import FIRST, PAUSED, RUNS


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
    # Of each choice by its index, as far as anybody has looked.
    replies: dict[int, GrowingReply] = field(default_factory=lambda: defaultdict(GrowingReply))
    prompt_ids: Sequence[int] = ()
    prompt_sha256: str = ids_sha256(())
    # Choices that the token limit ended.
    cut_off: set[int] = field(default_factory=set)
    failure: BaseException | None = None
    handed_over: asyncio.Future[None] = field(default_factory=_future)
    # A stream's tokens come so many together, but for the first and the last.
    tokens_at_once: int = 1
    # What another replica had delivered of the reply.
    said: Sequence[int] = ()
    # The tokens of which a stream's events so far tell.
    written: int = 0
    # Held while the engine has it: of a request of many prompts, the engine is given some at a time.
    turns: AbstractAsyncContextManager[None] = field(default_factory=nullcontext)

    def hand_over(self, prompt: Any, sampling_params: Any) -> None:
        """The engine is about to be given the prompt."""
        if sampling_params.max_tokens is None or sampling_params.max_tokens > self.most_tokens:
            sampling_params.max_tokens = self.most_tokens
        if self.tokens_at_once > 1:
            sampling_params.stream_interval = self.tokens_at_once
        self._read(prompt.get("prompt_token_ids") or ())
        self.choices = sampling_params.n
        if self.said:
            is_delta = sampling_params.output_kind is RequestOutputKind.DELTA
            self.replies[0].give(self.said) if is_delta else self.replies[0].see(self.said)
        if not self.handed_over.done():
            self.handed_over.set_result(None)

    def count(self, output: Any) -> None:
        """Take in a `RequestOutput`: a delta when streaming, else the only and final one."""
        if output.prompt_token_ids is not None and len(output.prompt_token_ids) != self.prompt_tokens:
            self._read(output.prompt_token_ids)
        if self.choices == 1:
            self.cached_tokens = output.num_cached_tokens or 0
        elif len(self.states) < self.choices:
            self._find_states()
        for choice in output.outputs:
            self.replies[choice.index].give(choice.token_ids)
        self.cut_off.update(choice.index for choice in output.outputs if choice.finish_reason == "length")
        if any(choice.finish_reason == "error" for choice in output.outputs):
            self.failure = GenerationError("the engine aborted this request")

    def peek(self) -> TokenUsage:
        """Usage so far, with what the engine has generated and not yet handed out."""
        for state in self._find_states():
            self.replies[state.request_index].see(state.detokenizer.output_token_ids)
            if state.prompt_len != self.prompt_tokens:
                self._read(state.prompt_token_ids or (0,) * state.prompt_len)
            if self.choices == 1:
                self.cached_tokens = state.num_cached_tokens or 0
            for choice in ended_choices(state):
                self.replies[choice.index].see(choice.token_ids)
        return self.usage()

    def usage(self) -> TokenUsage:
        completion = sum(len(reply.ids) for reply in self.replies.values())
        return TokenUsage(self.prompt_tokens, completion, self._cached())

    def _read(self, ids: Sequence[int]) -> None:
        self.prompt_ids, self.prompt_tokens, self.prompt_sha256 = ids, len(ids), ids_sha256(ids)

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


# Other requests of one replica for each token more that a stream's come together, up to a bound.
CROWD, MOST_AT_ONCE = 16, 8
# So many tokens that come together are given as long to become one piece as two by themselves, up to a bound.
PER_INTERVAL, MOST_INTERVALS = 2, 3
# A replica says at least every half second that it is alive.
LONGEST_INTERVAL_S = 0.5


@dataclass(frozen=True, slots=True)
class Gathering:
    """The bounds on the events of one stream: its `tokens` come together, and its pieces every `interval_s`. The first
    and the last are never kept waiting."""

    tokens: int = 1
    interval_s: float = 0.0


ONE_BY_ONE = Gathering()


@dataclass(slots=True)
class PromptMeters:
    """A meter for each prompt, by what vLLM calls it; together they tell what one meter tells."""

    parts: Mapping[str, UsageMeter]
    handed_over: asyncio.Future[None]
    # From one piece of a stream to the next.
    interval_s: float
    # For an echo alone the engine generates a token, which nobody gets.
    is_echo_alone: bool
    source: PromptSource = UNKNOWN_SOURCE
    keep_reply: int = 0
    tells_tokens: bool = False
    # Each chunk tells which tokens it delivers; so many are told.
    survives: bool = False
    is_stream: bool = False
    told_ids: int = 0
    # Of the whole reply, once vLLM has told it.
    reasoning_tokens: int = 0

    @property
    def failure(self) -> BaseException | None:
        return next((part.failure for part in self.parts.values() if part.failure is not None), None)

    @failure.setter
    def failure(self, failure: BaseException | None) -> None:
        next(iter(self.parts.values())).failure = failure

    def told(self, chunk: EngineChunk) -> EngineChunk:
        """The chunk with the hash of the tokens that were counted for it, and the last one with what its request wants
        of them."""
        digest = joined_sha256(
            (part.prompt_sha256 for part in self.parts.values()),
            (reply.sha256() for reply in self._replies()),
            self.source,
        )
        reply: Sequence[int] = ()
        told = None
        if chunk.finished and self.tells_tokens:
            prompts = [part.prompt_ids for part in self.parts.values()]
            told = TokenIds(prompts, [one.ids for one in self._replies()], self.source)
        elif chunk.finished and self.keep_reply:
            reply = next((one.ids[: self.keep_reply] for one in self._replies()), ())
        elif self.survives and not chunk.finished:
            reply = self._newly_written()
        return replace(chunk, tokens_sha256=digest, reply=tuple(reply), token_ids=told)

    def note_written(self) -> None:
        """An event of the stream is written, of all tokens that vLLM has handed out."""
        for part in self.parts.values():
            part.written = part.replies[0].given

    def _newly_written(self) -> Sequence[int]:
        (part,) = self.parts.values()
        # The last token of a reply in one piece may be the one that ends it: it is made again.
        known = part.written if self.is_stream else len(part.replies[0].ids) - 1
        before, self.told_ids = self.told_ids, max(self.told_ids, known)
        return part.replies[0].ids[before : self.told_ids]

    def _replies(self) -> Iterator[GrowingReply]:
        """Of each choice of each prompt, in their order; of an echo alone, none."""
        for part in self.parts.values() if not self.is_echo_alone else ():
            for index in range(part.choices):
                yield part.replies[index]

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


def gathering_of(request: EngineRequest, others: int, coalesce_s: float) -> Gathering:
    """The gathering of a request's stream where the replica has so many `others`: each event costs its event loop, and
    the ingress', a tenth of a millisecond. Without `coalesce_s` none is gathered.

    A parser of calls reads tokens one by one, as vLLM tests it.
    """
    if not request.stream or not coalesce_s:
        return ONE_BY_ONE
    crowd = min(MOST_AT_ONCE, 1 + others // CROWD)
    intervals = min(MOST_INTERVALS, max(1, crowd // PER_INTERVAL))
    interval_s = max(coalesce_s, min(coalesce_s * intervals, LONGEST_INTERVAL_S))
    return Gathering(1 if request.options.get("tools") else crowd, interval_s)


def meters_of(
    request: EngineRequest,
    engine_ids: Sequence[str],
    client: Any,
    *,
    places: int,
    gathering: Gathering = ONE_BY_ONE,
    source: PromptSource = UNKNOWN_SOURCE,
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
            tokens_at_once=gathering.tokens,
            said=request.said,
        )
        for engine_id in engine_ids
    }
    return PromptMeters(
        parts,
        handed_over,
        gathering.interval_s,
        is_echo_alone=request.max_tokens == 0,
        source=source,
        keep_reply=request.keep_reply if request.sequences == 1 else 0,
        tells_tokens=request.tells_tokens,
        survives=request.survives,
        is_stream=request.stream,
        told_ids=len(request.said),
    )


# The grammars that a caller's schemas become. What else there is, callers cannot ask for.
TRIED: dict[StructuredOutputOptions, Kind] = {
    StructuredOutputOptions.JSON: "json",
    StructuredOutputOptions.REGEX: "regex",
    StructuredOutputOptions.GRAMMAR: "grammar",
    StructuredOutputOptions.STRUCTURAL_TAG: "structural_tag",
}


def trials_of(engine_client: Any, turns: TrialTurns, terms: TrialTerms) -> GrammarTrials:
    """Trials as the engine behind one of vLLM's clients would compile."""
    return GrammarTrials(
        lambda: serialized_tokenizer(engine_client),
        turns,
        any_whitespace=any_whitespace(engine_client),
        terms=terms,
    )


def serialized_tokenizer(engine_client: Any) -> str:
    """The engine's tokenizer as vLLM's own backend serializes it: a grammar is compiled against every token."""
    from xgrammar import TokenizerInfo

    vocab_size = engine_client.model_config.get_vocab_size()
    return str(
        TokenizerInfo.from_huggingface(engine_client.get_tokenizer(), vocab_size=vocab_size).serialize_json()
    )


class CountingClient:
    """vLLM's engine client, with each request's grammar tried first and its outputs counted on their way."""

    def __init__(self, client: Any, trials: GrammarTrials) -> None:
        self._client = client
        self._trials = trials
        self.meters: dict[str, UsageMeter] = {}
        # What each is part of.
        self.requests: dict[str, EngineRequest] = {}
        # Ids of what is paused.
        self.paused: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def generate(
        self, prompt: Any, sampling_params: Any, request_id: str, **options: Any
    ) -> AsyncGenerator[Any, None]:
        meter = self.meters[request_id]
        try:
            async with (
                meter.turns,
                aclosing(self._outputs(meter, prompt, sampling_params, request_id, options)) as outputs,
            ):
                async for output in outputs:
                    yield output
        except Exception as error:
            meter.failure = error
            raise

    async def _outputs(
        self,
        meter: UsageMeter,
        prompt: Any,
        sampling_params: Any,
        request_id: str,
        options: dict[str, Any],
    ) -> AsyncGenerator[Any, None]:
        request = self.requests[request_id]
        # Here vLLM has made one grammar of the request's schema or tools, and the engine has not seen it.
        await self._try_grammar(sampling_params, request)
        meter.hand_over(prompt, sampling_params)
        if request.said:
            prompt, sampling_params = going_on_from(prompt, sampling_params, request.said)
        options["priority"] = self._priority(request_id)
        if request.trace_headers:
            options["trace_headers"] = request.trace_headers
        generating = self._client.generate(prompt, sampling_params, request_id, **options)
        async with aclosing(generating) as outputs:
            async for output in outputs:
                meter.count(output)
                yield output

    async def pause(self, engine_ids: Sequence[str], paused: bool) -> None:
        """See `models.engine.ReplicaEngine.pause`. One that the engine has not seen begins as it is to be by then."""
        change = self.paused.update if paused else self.paused.difference_update
        change(engine_ids)
        known = [state.request_id for one in engine_ids for state in states_of(self._client, one)]
        if known:
            priority = self._priority(engine_ids[0])
            await self._client.engine_core.call_utility_async("set_priorities", known, priority)

    def _priority(self, request_id: str) -> int:
        if request_id in self.paused:
            return PAUSED
        request = self.requests.get(request_id)
        return FIRST if request is not None and request.tier == "priority" else RUNS

    @property
    def uncounted(self) -> Any:
        """The client itself, for work that nobody pays for."""
        return self._client

    async def close(self) -> None:
        """End what tries grammars, and the engine."""
        await self._trials.close()
        self._client.shutdown()

    async def _try_grammar(self, sampling_params: Any, request: EngineRequest) -> None:
        if sampling_params.structured_outputs is None:
            return
        kind, spec = grammar_key(sampling_params.structured_outputs)
        if kind in TRIED:
            await self._trials.check(TRIED[kind], spec, request)
