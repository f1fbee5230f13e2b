"""A chat request from checked body to settled cost: prepare, admit, hold, generate, settle or release."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from billing.caller import Caller
from billing.ledger.ledger import Ledger
from billing.rate_limits.rate_limits import RateLimits
from models.catalog import Catalog, ChatModel
from models.engine import Engine, EngineRequest
from models.options.messages import engine_messages
from models.options.options import check_grammars, select_options
from serve.chat.request import ChatCompletionRequest
from serve.metrics.chat import ChatMetrics
from serve.money.admission import admit_worst_case
from serve.money.exchange import Exchange
from serve.money.hold import HoldTerms, hold_worst_case
from serve.money.price_book import PriceBook, price_of
from serve.money.terms import MostTokens, TokenTerms


@dataclass(frozen=True, slots=True)
class PreparedChat:
    """A request that passed every check that needs no ledger and no engine."""

    model: ChatModel
    request: EngineRequest
    # A count that the prompt's tokens cannot pass, and the one that they have at least.
    prompt_tokens_bound: int

    @property
    def bound(self) -> MostTokens:
        """The worst case of any prompt within the bound: the shortest one leaves most room for the reply."""
        return MostTokens(self.prompt_tokens_bound, self._completion(1))

    @property
    def least(self) -> MostTokens:
        """What it asks for with the shortest of prompts; of a default, one token is enough."""
        asked = self._completion(1) if self.request.max_tokens_field is not None else self._choices
        return MostTokens(1, asked)

    def counted(self, prompt_tokens: int) -> MostTokens:
        """The worst case of a prompt of so many tokens."""
        return MostTokens(prompt_tokens, self._completion(prompt_tokens))

    @property
    def _choices(self) -> int:
        return int(self.request.options.get("n", 1))

    def _completion(self, prompt_tokens: int) -> int:
        left = max(1, self.model.context_length - prompt_tokens)
        return min(self.request.max_tokens, left) * self._choices


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
            max_tokens_field=body.token_limit_field,
        )
        return PreparedChat(model, request, self._prompt_bound(model, request))

    def _prompt_bound(self, model: ChatModel, request: EngineRequest) -> int:
        """What is proven of its bytes, and else all that the engine takes: a longer prompt is refused there."""
        proven = self._engines[model.id].prompt_bound()
        bound = proven.of(request) if proven is not None else None
        return model.context_length if bound is None else min(bound, model.context_length)

    @asynccontextmanager
    async def open(self, caller: Caller, chat: PreparedChat, request_id: str) -> AsyncIterator[Exchange]:
        """Admit the request, hold its worst-case cost, and on the way out settle or release, however that comes."""
        price_list = await self._prices.current()
        price = price_of(price_list, chat.model.id)
        engine = self._engines[chat.model.id]

        async def count() -> MostTokens:
            return chat.counted(await engine.count_tokens(chat.request))

        tokens = TokenTerms(chat.bound, chat.least, count)
        admission = await admit_worst_case(self._limiter, caller, tokens, clock=self._clock)
        observed = self._metrics.begin(chat.model.id)
        exchange: Exchange | None = None
        try:
            # Not before: it is work, and a project's limits bound it.
            check_grammars(chat.request.options)
            hold, most = await hold_worst_case(
                self._ledger,
                HoldTerms(caller, price, price_list.version, request_id, tokens),
                clock=self._clock,
            )
            exchange = Exchange(
                engine=engine,
                request=chat.request,
                hold=hold,
                most=most,
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
            await admission.done(exchange.counted_tokens if exchange else 0)
