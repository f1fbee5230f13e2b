"""A chat request from checked body to settled cost: prepare, admit, hold, generate, settle or release."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from billing.caller import Caller
from billing.errors import UsageNotRecorded
from billing.ledger import Ledger
from billing.limits import RateLimits
from billing.price import Cost, ModelPrice, cost
from billing.usage import Hold, Outcome, Settlement, UsageFigures
from billing.window import LimitState
from models.catalog import Catalog, ChatModel
from models.engine import Engine, EngineChunk, EngineRequest, TokenUsage
from models.messages import engine_messages
from models.options import check_grammars, select_options
from serve.chat_request import ChatCompletionRequest
from serve.disconnect import Client
from serve.holds import HoldTerms, hold_worst_case
from serve.metrics.chat import ChatMetrics, ObservedChat
from serve.prices import PriceBook, price_of

# The template wraps each message in a few special tokens; a byte is at most one token in the text itself.
TEMPLATE_TOKENS_PER_MESSAGE = 32


@dataclass(frozen=True, slots=True)
class PreparedChat:
    """A request that passed every check that needs no ledger and no engine."""

    model: ChatModel
    request: EngineRequest
    prompt_tokens_bound: int
    completion_tokens_bound: int

    @property
    def tokens_bound(self) -> int:
        return self.prompt_tokens_bound + self.completion_tokens_bound


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one request used and cost, and whether that is on record."""

    usage: TokenUsage
    price: ModelPrice
    cost: Cost
    settlement: Settlement


class Exchange:
    """One admitted and held request. Iterate `chunks`, then `settle`."""

    def __init__(
        self,
        *,
        engine: Engine,
        chat: PreparedChat,
        hold: Hold,
        price: ModelPrice,
        limits: LimitState,
        ledger: Ledger,
        observed: ObservedChat,
        clock: Callable[[], datetime],
    ) -> None:
        self.hold = hold
        self.limits = limits
        self.usage = TokenUsage()
        self.delivered = False
        # Set by who listens to it: a cancellation while it is there is a server that stops.
        self.client = Client()
        self._engine = engine
        self._chat = chat
        self._price = price
        self._ledger = ledger
        self._observed = observed
        self._clock = clock
        self._settling: asyncio.Task[Receipt] | None = None

    async def chunks(self) -> AsyncGenerator[EngineChunk, None]:
        """The engine's chunks; `usage` follows them. Raises what `Engine.generate` raises."""
        async with aclosing(self._engine.generate(self._chat.request)) as chunks:
            async for chunk in chunks:
                self.usage = chunk.usage
                yield chunk

    def begin_delivery(self) -> None:
        """For who sends the reply, before its first byte leaves."""
        self.delivered = True
        self._observed.deliver()

    async def settle(self, outcome: Outcome) -> Receipt:
        """Write what was used, once, and to the end even when the caller is cancelled meanwhile."""
        if self._settling is None:
            self._settling = asyncio.create_task(self._settle_and_count(outcome))
        return await asyncio.shield(self._settling)

    async def _settle_and_count(self, outcome: Outcome) -> Receipt:
        try:
            receipt = await self._settle(outcome)
        except UsageNotRecorded:
            self._observed.lose()
            raise
        self._observed.settle(receipt.usage, receipt.cost, receipt.settlement.status)
        return receipt

    async def _settle(self, outcome: Outcome) -> Receipt:
        # A failure is our fault: what was delivered is paid for, and no minimum is asked.
        charged = cost(
            self._price,
            prompt_tokens=self.usage.prompt_tokens,
            completion_tokens=self.usage.completion_tokens,
            minimum=outcome != "failed",
        )
        settlement = await self._ledger.settle(
            self.hold,
            figures=UsageFigures(
                prompt_tokens=self.usage.prompt_tokens,
                completion_tokens=self.usage.completion_tokens,
                cached_tokens=self.usage.cached_tokens,
                stream=self._chat.request.stream,
            ),
            cost=charged,
            outcome=outcome,
            now=self._clock(),
        )
        return Receipt(self.usage, self._price, charged, settlement)

    async def close(self, failure: BaseException) -> None:
        """Settle what was generated before `failure`, or release the hold when nothing was."""
        is_our_fault = isinstance(failure, Exception) or not self.client.gone
        if self._settling is not None:
            await asyncio.shield(self._settling)
        elif self.usage.completion_tokens == 0 or (is_our_fault and not self.delivered):
            # Nobody pays for a reply of which only an error was seen.
            await asyncio.shield(asyncio.create_task(self._ledger.release(self.hold, now=self._clock())))
        else:
            await self.settle("failed" if is_our_fault else "disconnected")


class ChatService:
    """Everything between a parsed chat request and its engine."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        engines: Mapping[str, Engine],
        prices: PriceBook,
        ledger: Ledger,
        limiter: RateLimits,
        metrics: ChatMetrics,
        clock: Callable[[], datetime],
    ) -> None:
        self._catalog = catalog
        self._engines = engines
        self._prices = prices
        self._ledger = ledger
        self._limiter = limiter
        self._metrics = metrics
        self._clock = clock

    def prepare(self, caller: Caller, body: ChatCompletionRequest, completion_id: str) -> PreparedChat:
        """Check what needs no I/O. Raises `UnknownModel`, `UnsupportedOption` or `InvalidField`."""
        model = self._catalog.get(body.model) if body.model is not None else self._catalog.default
        options = select_options(body.option_fields(), capabilities=model.capabilities)
        messages = engine_messages(body.message_fields(), capabilities=model.capabilities)
        max_tokens = body.token_limit
        request = EngineRequest(
            request_id=completion_id,
            model_id=model.id,
            messages=messages,
            max_tokens=max_tokens,
            stream=body.stream,
            cache_salt=caller.workspace_id,
            options=options,
            project_id=caller.project_id,
            project_weight=caller.limits.weight,
            max_tokens_field="max_tokens" if body.max_completion_tokens is None else "max_completion_tokens",
        )
        return PreparedChat(
            model=model,
            request=request,
            prompt_tokens_bound=min(model.context_length, prompt_bound(request)),
            completion_tokens_bound=min(max_tokens, model.context_length) * (body.n or 1),
        )

    @asynccontextmanager
    async def open(self, caller: Caller, chat: PreparedChat, request_id: str) -> AsyncIterator[Exchange]:
        """Admit the request, hold its worst-case cost, and on the way out settle or release, however that comes."""
        price_list = await self._prices.current()
        price = price_of(price_list, chat.model.id)
        admission = await self._limiter.admit(caller, tokens_bound=chat.tokens_bound, now=self._clock())
        observed = self._metrics.begin(chat.model.id)
        exchange: Exchange | None = None
        try:
            # Not before: it is work, and a project's limits bound it.
            check_grammars(chat.request.options)
            engine = self._engines[chat.model.id]
            terms = HoldTerms(
                caller=caller,
                price=price,
                pricing_version=price_list.version,
                request_id=request_id,
                prompt_tokens_bound=chat.prompt_tokens_bound,
                completion_tokens_bound=chat.completion_tokens_bound,
            )
            hold = await hold_worst_case(
                self._ledger,
                terms,
                count_prompt=lambda: engine.count_tokens(chat.request),
                clock=self._clock,
            )
            exchange = Exchange(
                engine=engine,
                chat=chat,
                hold=hold,
                price=price,
                limits=admission.headers_state,
                ledger=self._ledger,
                observed=observed,
                clock=self._clock,
            )
            yield exchange
        except BaseException as failure:
            observed.fail(failure)
            if exchange is not None:
                await exchange.close(failure)
            raise
        finally:
            observed.end()
            await admission.done(exchange.usage.total_tokens if exchange else 0)


def prompt_bound(request: EngineRequest) -> int:
    """A count that the prompt's tokens cannot pass: its bytes, and the template's tokens."""
    size = sum(len(str(value).encode()) for message in request.messages for value in message.values())
    tools = len(str(request.options.get("tools", "")).encode())
    return size + tools + TEMPLATE_TOKENS_PER_MESSAGE * (len(request.messages) + 1)
