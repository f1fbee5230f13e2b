"""A chat request from checked body to settled cost: prepare, admit, hold, generate, settle or release."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from billing.caller import Caller
from models.catalog import Catalog, ChatModel
from models.engine import CONTINUES, Engine, EngineRequest, ReplyFormName
from models.errors import InvalidField
from models.options.messages import engine_messages
from models.options.options import check_grammars, select_options
from serve.chat.engine_reply import EngineReply
from serve.chat.request import DEFAULT_MAX_TOKENS, AskedChat
from serve.http.middleware import fresh_id
from serve.http.replies import Client
from serve.metrics.charged_requests import ChatMetrics, ObservedChat
from serve.money.admission import Admissions, Admitted
from serve.money.held_request import UNOBSERVED
from serve.money.hold import MostTokens, TokenTerms
from serve.prompt_compression.compressed_chat import CompressedChat, PreparedPrompt
from serve.prompt_compression.compressing import EngineTokens
from serve.prompt_compression.service import PromptCompressor

# What usage events call the request, by the form of its reply.
_ROUTES: Mapping[ReplyFormName, str] = {
    "chat": "chat",
    "completion": "completions",
    "response": "responses",
    "message": "messages",
}
# A log probability in a reply's JSON: the shortest there is of each form, and more than nearly any has.
_SHORTEST = len('{"token":"","logprob":0.0,"bytes":[]}')
LEAST_LISTED_BYTES: Mapping[ReplyFormName, int] = {
    "chat": _SHORTEST,
    "completion": len('"":0.0,'),
    "response": _SHORTEST,
    "message": _SHORTEST,
}
LIKELY_LISTED_BYTES = 128


@dataclass(frozen=True, slots=True)
class PreparedChat:
    """A request that passed every check that needs no ledger and no engine."""

    model: ChatModel
    request: EngineRequest
    # A count that the prompt's tokens cannot pass, and the one that they have at least.
    prompt_tokens_bound: int
    # None if compression was not asked for.
    prompt: PreparedPrompt | None = None

    @property
    def route(self) -> str:
        return _ROUTES[self.request.form]

    @property
    def bound(self) -> MostTokens:
        """The worst case of any prompt within the bound: the shortest one leaves most room for the reply."""
        return MostTokens(self.prompt_tokens_bound, self._completion(1))

    @property
    def least(self) -> MostTokens:
        """The tokens that it asks for with the shortest of prompts; of a default, one token is enough."""
        sequences = self.request.sequences
        asked = self._completion(1) if self.request.max_tokens_field is not None else sequences
        return MostTokens(max(1, len(self.request.prompts)), asked)

    def counted(self, prompt_tokens: int) -> MostTokens:
        """The worst case of a prompt of that many tokens."""
        return MostTokens(prompt_tokens, self._completion(prompt_tokens))

    @property
    def enough(self) -> int | None:
        """The reply that a caller who gave no limit gets where more cannot be paid for, or is over the limits."""
        is_limited = self.request.max_tokens < self.model.context_length
        if is_limited or self.request.max_tokens_field is not None:
            return None
        return DEFAULT_MAX_TOKENS * self.request.sequences

    def held_to(self, most: MostTokens) -> EngineRequest:
        """The request for the engine, which generates no more than is held."""
        held = max(1, most.completion // self.request.sequences)
        return replace(self.request, max_tokens=min(held, self.request.max_tokens))

    def kept_within(self, most_bytes: int) -> "PreparedChat":
        """Without a limit of the caller's, the reply ends before what it lists can have more bytes. Raises
        `InvalidField` where the tokens that the caller asks for could not be listed in so many."""
        request, listed = self.request, self.request.listed_at_each
        if not listed:
            return self
        if request.max_tokens_field is None:
            most = max(1, most_bytes // (listed * LIKELY_LISTED_BYTES))
            return replace(self, request=replace(request, max_tokens=min(request.max_tokens, most)))
        tokens = min(request.max_tokens, self.model.context_length)
        if tokens * listed * LEAST_LISTED_BYTES[request.form] > most_bytes:
            message = (
                f"the reply could list more than the {most_bytes} bytes that are kept; ask for fewer tokens"
            )
            raise InvalidField(("logprobs",), message, kind="too_much")
        return self

    @property
    def longest(self) -> int:
        """The most prompt tokens that the engine takes: each prompt has the whole context."""
        return self.model.context_length * max(1, len(self.request.prompts))

    def _completion(self, prompt_tokens: int) -> int:
        # Of several prompts, what each of them leaves is not known from what they have together.
        left = max(1, self.model.context_length - (0 if self.request.prompts else prompt_tokens))
        return min(self.request.max_tokens, left) * self.request.sequences


class ChatService:
    """Everything between a parsed chat request and its engine."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        engines: Mapping[str, Engine],
        admissions: Admissions,
        metrics: ChatMetrics,
        compressor: PromptCompressor,
    ) -> None:
        self._catalog = catalog
        self._engines = engines
        self.admissions = admissions
        self._metrics = metrics
        self._compressor = compressor

    def model(self, model_id: str | None) -> ChatModel:
        """The model of this id, or the default. Raises `UnknownModel`."""
        return self._catalog.get(model_id) if model_id is not None else self._catalog.default

    def prepare(self, caller: Caller, asked: AskedChat, *, most_bytes: int | None = None) -> PreparedChat:
        """Check what needs no I/O; `form_options` are checked already. `most_bytes`: those of a reply that is written
        down. Raises `UnknownModel`, `UnsupportedOption` or `InvalidField`."""
        model = self.model(asked.model)
        options = select_options(
            asked.options,
            capabilities=model.capabilities,
            default_temperature=asked.default_temperature,
            drops_effort=asked.drops_effort,
            takes_constraints=asked.takes_constraints,
        )
        request = EngineRequest(
            request_id=fresh_id(),
            model_id=model.id,
            messages=engine_messages(asked.messages, capabilities=model.capabilities),
            max_tokens=model.context_length if asked.token_limit is None else asked.token_limit,
            stream=asked.stream,
            cache_salt=caller.workspace_id,
            options=options,
            project_id=caller.project_id,
            project_weight=caller.limits.weight,
            background=caller.background,
            max_tokens_field=asked.token_limit_field,
            form=asked.form,
            prompts=tuple(asked.prompts),
            form_options=asked.form_options,
        )
        prompt = self._compressor.prepare(caller, asked.messages, asked.compression)
        chat = PreparedChat(model, request, self._prompt_bound(model, request), prompt)
        return chat if most_bytes is None else chat.kept_within(most_bytes)

    def _prompt_bound(self, model: ChatModel, request: EngineRequest) -> int:
        """The bound that is proven of its bytes, else all that the engine takes: a longer prompt is refused there."""
        if request.prompts:
            sizes = (
                len(prompt) if isinstance(prompt, tuple) else model.context_length
                for prompt in request.prompts
            )
            return sum(min(size, model.context_length) for size in sizes)
        if request.form_options.get(CONTINUES):
            # No template was looked at for what it makes of that.
            return model.context_length
        proven = self._engines[model.id].prompt_bound()
        bound = proven.of(request) if proven is not None else None
        return model.context_length if bound is None else min(bound, model.context_length)

    @asynccontextmanager
    async def open(
        self, chat: PreparedChat, admitted: Admitted, client: Client
    ) -> AsyncIterator[EngineReply]:
        """Compress the prompt where that was asked for, hold the worst-case cost, and on the way out settle or release,
        however that comes."""
        engine = self._engines[chat.model.id]
        (tokens,) = admitted.parts
        async with AsyncExitStack() as stack:
            observed = self._metrics.begin(chat.model.id)
            compressed = await self._compressed(stack, chat, admitted, observed, client)
            give_way = None
            if compressed is not None:
                tokens = self._terms(self._rewritten(chat, compressed), is_shrunk=tokens.is_shrunk)
                give_way = partial(self._give_way, chat, compressed, is_shrunk=tokens.is_shrunk)
            holding = admitted.hold(
                tokens,
                observed,
                stream=chat.request.stream,
                client=client,
                check=partial(check_grammars, chat.request.options),
                give_way=give_way,
                prompt=compressed,
            )
            held = await stack.enter_async_context(holding)
            sent = chat if compressed is None else self._rewritten(chat, compressed)
            request = sent.held_to(held.most) if held.terms.tokens.is_shrunk else sent.request
            yield EngineReply(engine, request, admitted, held, observed, compressed)

    async def _give_way(
        self, chat: PreparedChat, compressed: CompressedChat, *, is_shrunk: bool
    ) -> TokenTerms | None:
        """Terms with less of a hold for its compression, or with less of it compressed."""
        if not await compressed.give_way():
            return None
        return self._terms(self._rewritten(chat, compressed), is_shrunk=is_shrunk)

    async def count(self, chat: PreparedChat, admitted: Admitted, client: Client) -> int:
        """The prompt's tokens. It counts as a request and is free; but who could not pay for the least of prompts has
        no replica started. Raises what `Admitted.hold_part` and `Engine.count_tokens` raise."""
        (tokens,) = admitted.parts
        async with admitted.hold_part(tokens, UNOBSERVED, client=client):
            return await self._engines[chat.model.id].count_tokens(chat.request, beyond_context=True)

    async def _count_messages(
        self, chat: PreparedChat, admitted: Admitted, client: Client, messages: Sequence[Mapping[str, Any]]
    ) -> int:
        """The tokens of a prompt of these alone. As `count`, it starts a replica only for who could pay."""
        engine = self._engines[chat.model.id]
        request = replace(
            chat.request, messages=tuple(messages), options={}, form="chat", form_options={}, max_tokens=1
        )
        async with AsyncExitStack() as stack:
            if not await engine.ready():
                least = terms_of_count(chat)
                await stack.enter_async_context(admitted.hold_part(least, UNOBSERVED, client=client))
            return await engine.count_tokens(request, beyond_context=True)

    async def _compressed(
        self,
        stack: AsyncExitStack,
        chat: PreparedChat,
        admitted: Admitted,
        observed: ObservedChat,
        client: Client,
    ) -> CompressedChat | None:
        """The compressed prompt. A refusal or a failure here is the chat's."""
        if chat.prompt is None:
            return None
        count = partial(self._count_messages, chat, admitted, client)
        tokens = EngineTokens(chat.model.id, chat.request.messages, count)
        compressing = self._compressor.compress(chat.prompt, admitted, tokens, client)
        try:
            compressed = await stack.enter_async_context(compressing)
        except BaseException as failure:
            observed.fail(failure)
            observed.end()
            raise
        count_tokens = self._engines[chat.model.id].count_tokens
        compressed.count = partial(count_tokens, chat.request, beyond_context=True)
        stack.callback(compressed.close)
        return compressed

    def _rewritten(self, chat: PreparedChat, compressed: CompressedChat) -> PreparedChat:
        """The chat with the compressed messages and their worst-case cost."""
        if not compressed.result.compressed:
            return chat
        request = replace(chat.request, messages=compressed.result.rewritten(chat.request.messages))
        return replace(chat, request=request, prompt_tokens_bound=self._prompt_bound(chat.model, request))

    def terms(self, chat: PreparedChat) -> TokenTerms:
        """The most that the chat can use, as it came: a prompt that does not fit may do so once it is compressed."""
        return self._terms(chat, may_be_long=chat.prompt is not None)

    def _terms(self, chat: PreparedChat, *, may_be_long: bool = False, is_shrunk: bool = False) -> TokenTerms:
        """`is_shrunk`: the limits have room for no more of a reply than is enough."""
        engine = self._engines[chat.model.id]

        async def count() -> MostTokens:
            counted = await engine.count_tokens(chat.request, beyond_context=may_be_long)
            return chat.counted(min(counted, chat.longest))

        terms = TokenTerms(chat.model.id, chat.bound, chat.least, count, enough=chat.enough)
        if is_shrunk:
            terms.shrink()
        return terms


def terms_of_count(chat: PreparedChat) -> TokenTerms:
    """The most that one can use who asks for nothing but a count."""
    nothing = MostTokens(1, 0)

    async def count() -> MostTokens:
        return nothing

    return TokenTerms(chat.model.id, nothing, nothing, count, counts_against_limits=False)
