"""A chat request from checked body to settled cost: prepare, admit, hold, generate, settle or release."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from types import TracebackType
from typing import Any

from billing.caller import Caller, PriceTerms
from billing.usage import MeteringStatus
from models.catalog import Catalog, ChatModel
from models.counted_tokens import TokenIds
from models.engine import CONTINUES, Engine, EngineChunk, EngineRequest, ServiceTier
from models.errors import EngineFailed, InvalidField, UnsupportedOption
from models.options.messages import engine_messages
from models.options.options import check_grammars, select_options
from serve.chat.request import AskedChat, PreparedChat
from serve.http.middleware import fresh_id
from serve.http.replies import Client
from serve.metrics.charged_requests import ChatMetrics, ObservedChat
from serve.money.admission import Admissions, Admitted
from serve.money.held_request import (
    AlsoWrite,
    HeldRequest,
    MoreThanHeld,
    MostTokens,
    Receipt,
    TokenTerms,
)
from serve.money.prices import charged_fields
from serve.prompt_compression.compressed_chat import (
    COMPRESSION_HEADER,
    CompressedChat,
    compression_fields,
)
from serve.prompt_compression.compressing import EngineTokens
from serve.prompt_compression.service import PromptCompressor
from serve.prompt_compression.verifying import SettledReply, Verifier
from serve.tracing.request_record import ChargedWork, current_record, step


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatService:
    """Everything between a parsed chat request and its engine."""

    catalog: Catalog
    engines: Mapping[str, Engine]
    admissions: Admissions
    metrics: ChatMetrics
    compressor: PromptCompressor
    verifier: Verifier
    # What is charged of a model's prices in each tier that is offered beside the usual one, in millionths.
    tiers: Mapping[ServiceTier, int] = field(default_factory=dict)

    def model(self, model_id: str | None) -> ChatModel:
        """The model of this id, or the default. Raises `UnknownModel`."""
        return self.catalog.get(model_id) if model_id is not None else self.catalog.default

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
            adapter_folder=model.adapter_folder,
            options=options,
            project_id=caller.project_id,
            project_weight=caller.limits.weight,
            background=caller.background,
            tier=self._tier(caller, asked.options.get("service_tier")),
            max_tokens_field=asked.token_limit_field,
            form=asked.form,
            prompts=tuple(asked.prompts),
            form_options=asked.form_options,
            tells_tokens=asked.tells_tokens,
        )
        prompt = self.compressor.prepare(caller, asked.messages, asked.compression)
        bound = self._prompt_bound(model, request)
        chat = PreparedChat(model, request, bound, asked, prompt, most_bytes)
        return chat if most_bytes is None else chat.kept_within(most_bytes)

    def _tier(self, caller: Caller, asked: Any) -> ServiceTier:
        """Raises `InvalidField` and `UnsupportedOption`."""
        if asked is not None and not isinstance(asked, str):
            raise InvalidField(("service_tier",), "must be a string", kind="string_type")
        if asked in (None, "auto", "default"):
            return "default"
        offered = {} if caller.background else self.tiers
        for tier in offered:
            if tier == asked:
                return tier
        raise UnsupportedOption("service_tier", f"offered are {', '.join(['auto', 'default', *offered])}")

    def at_tier(self, caller: Caller, chat: PreparedChat) -> Caller:
        """The caller at the prices of the chat's service tier."""
        tier = chat.request.tier
        if tier == "default":
            return caller
        return replace(caller, tier=tier, price_terms=PriceTerms(None, self.tiers[tier]))

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
        proven = self.engines[model.id].prompt_bound()
        bound = proven.of(request) if proven is not None else None
        return model.context_length if bound is None else min(bound, model.context_length)

    @asynccontextmanager
    async def open(
        self, chat: PreparedChat, admitted: Admitted, client: Client
    ) -> AsyncIterator[EngineReply]:
        """Compress the prompt where that was asked for, hold the worst-case cost, and on the way out settle or release,
        however that comes."""
        engine = self.engines[chat.model.id]
        (tokens,) = admitted.parts
        async with AsyncExitStack() as stack:
            observed = self.metrics.begin(chat.model.id)
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
            if compressed is not None and (kept := self.verifier.kept_of(compressed)):
                request = replace(request, keep_reply=kept)
            whole = chat.request.messages
            yield EngineReply(engine, request, admitted, held, observed, self.verifier, whole, compressed)

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
        async with admitted.hold_part(tokens, ChargedWork(), client=client):
            return await self.engines[chat.model.id].count_tokens(chat.request, beyond_context=True)

    async def _count_messages(
        self, chat: PreparedChat, admitted: Admitted, client: Client, messages: Sequence[Mapping[str, Any]]
    ) -> int:
        """The tokens of a prompt of these alone. As `count`, it starts a replica only for who could pay."""
        engine = self.engines[chat.model.id]
        request = replace(
            chat.request, messages=tuple(messages), options={}, form="chat", form_options={}, max_tokens=1
        )
        async with AsyncExitStack() as stack:
            if not await engine.ready():
                least = terms_of_count(chat)
                await stack.enter_async_context(admitted.hold_part(least, ChargedWork(), client=client))
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
        compressing = self.compressor.compress(chat.prompt, admitted, tokens, client)
        try:
            compressed = await stack.enter_async_context(compressing)
        except BaseException as failure:
            observed.fail(failure)
            observed.end()
            raise
        count_tokens = self.engines[chat.model.id].count_tokens
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
        engine = self.engines[chat.model.id]

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


class EngineSpan:
    """Begun when the engine is asked; a step of it, `queue`, ends when the engine is given the prompt: a replica was
    found or started, it was the project's turn, the prompt was rendered and read. `request` carries it to the engine.
    """

    def __init__(self, request: EngineRequest) -> None:
        operation = "text_completion" if request.form == "completion" else "chat"
        self._span = step(f"{operation} {request.model_id}", "client")
        self._queue = self._span.child("queue")
        self._waits = True
        self._began = perf_counter()
        self._record = current_record()
        self.request = request
        if self._span.trace_id is None:
            return
        self.request = replace(request, trace_headers=self._span.headers())
        self._span.set("gen_ai.operation.name", operation)
        self._span.set("gen_ai.provider.name", "pith")
        self._span.set("gen_ai.request.model", request.model_id)
        self._span.set("gen_ai.request.max_tokens", request.max_tokens)

    def see(self, chunk: EngineChunk) -> None:
        """A sign of life: the first says that it waits no longer, and the last one what was used."""
        record, usage = self._record, chunk.usage
        if self._waits:
            self._waits = False
            self._queue.end()
            record.queue_s = perf_counter() - self._began
        if usage.completion_tokens and record.first_token_s is None:
            record.first_token_s = perf_counter() - record.began
        if chunk.finished:
            self._span.set("gen_ai.usage.input_tokens", usage.prompt_tokens)
            self._span.set("gen_ai.usage.output_tokens", usage.completion_tokens)
            self._span.set("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens)
            # Whoever reads the chunks stops here, and does not come back for the end.
            self._span.end()

    def __enter__(self) -> EngineSpan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._waits:
            self._queue.__exit__(kind, error, trace)
        self._span.__exit__(kind, error, trace)


logger = logging.getLogger("pith.chat")


@dataclass(slots=True)
class EngineReply:
    """Iterate `chunks`, then settle what is `held`. `whole` are the messages before their compression."""

    engine: Engine
    request: EngineRequest
    admitted: Admitted
    held: HeldRequest
    observed: ObservedChat
    verifier: Verifier
    whole: Sequence[Mapping[str, Any]]
    # The compressed prompt, if compression was asked for.
    compressed: CompressedChat | None = None
    # Token ids of the reply, where the request keeps them.
    reply: tuple[int, ...] = ()
    # All token ids, where the request asks for them.
    token_ids: TokenIds | None = None
    # What was asked and what was given, where the chat landed elsewhere.
    landing: Mapping[str, Any] | None = None

    async def chunks(self) -> AsyncGenerator[EngineChunk, None]:
        """The engine's chunks; their usage is noted. Raises what `Engine.generate` raises."""
        with EngineSpan(self.request) as span:
            async with aclosing(self.engine.generate(span.request)) as chunks:
                async for chunk in chunks:
                    span.see(chunk)
                    yield self._paid(chunk)

    def _paid(self, chunk: EngineChunk) -> EngineChunk:
        """A chunk whose usage is noted. Raises `EngineFailed` where it is more than was held."""
        try:
            self.held.use(chunk.usage, chunk.tokens_sha256)
        except MoreThanHeld as error:
            self.observed.exceed()
            raise EngineFailed(str(error)) from None
        if self.compressed is not None and chunk.usage.prompt_tokens:
            self.compressed.begin_aside()
        self.reply = chunk.reply or self.reply
        if chunk.token_ids is not None:
            self.token_ids = chunk.token_ids
            self.reply = tuple(chunk.token_ids.replies[0][: self.request.keep_reply])
        return chunk

    async def settle(self, also_write: AlsoWrite | None = None) -> Receipt:
        """Settle a completed reply. Raises what `HeldRequest.settle` raises."""
        if self.compressed is not None:
            await self.compressed.finish_aside()
            await self.compressed.wait_for_payers()
        receipt = await self.held.settle("completed", also_write=also_write)
        if self.compressed is not None:
            self._sample(self.compressed, receipt)
        return receipt

    def _sample(self, compressed: CompressedChat, receipt: Receipt) -> None:
        if not self.request.keep_reply:
            self.verifier.left_whole(compressed)
            return
        self.verifier.take(
            SettledReply(
                messages=self.whole,
                sent=self.request,
                reply=self.reply,
                usage=receipt.usage,
                caller=self.admitted.caller,
                event_id=receipt.settlement.event_id,
                request_id=self.held.terms.request_id,
                compressed=compressed,
            )
        )

    def headers(self, status: MeteringStatus) -> dict[str, str]:
        compression = "off" if self.compressed is None else self.compressed.result.status
        return self.admitted.reply_headers(status) | {COMPRESSION_HEADER: compression}

    def charged(self, receipt: Receipt) -> dict[str, Any]:
        """The reply's `usage` and `service`."""
        fields = charged_fields(receipt)
        if self.request.tier != "default":
            fields["service_tier"] = self.request.tier
        if self.landing is not None:
            fields["service"]["landing"] = self.landing
        if self.token_ids is not None:
            fields["service"]["tokens"] = self.token_ids.fields()
        if self.compressed is not None:
            fields["service"]["compression"] = compression_fields(self.compressed, receipt)
        return fields

    def begin_delivery(self, first: EngineChunk) -> None:
        """Call it before the first byte of a stream is sent. Raises `EngineFailed` if it is not a stream of events."""
        if not first.data.startswith((b"data: {", b"event: ")):
            raise EngineFailed("the engine did not return a stream of server-sent events")
        self.held.delivered = True
        self.observed.deliver(first.usage.completion_tokens)
