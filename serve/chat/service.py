"""A chat request from checked body to settled cost: prepare, admit, hold, generate, settle or release."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from billing.caller import Caller
from models.catalog import Catalog, ChatModel
from models.engine import Engine, EngineRequest
from models.options.messages import engine_messages
from models.options.options import check_grammars, select_options
from serve.chat.engine_reply import EngineReply
from serve.chat.request import ChatCompletionRequest
from serve.http.disconnect import Client
from serve.metrics.chat import ChatMetrics
from serve.money.admission import Admissions
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
        """The worst case of a prompt of that many tokens."""
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
        admissions: Admissions,
        metrics: ChatMetrics,
    ) -> None:
        self._catalog = catalog
        self._engines = engines
        self._admissions = admissions
        self._metrics = metrics

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
    async def open(
        self, caller: Caller, chat: PreparedChat, request_id: str, client: Client
    ) -> AsyncIterator[EngineReply]:
        """Admit the request, hold its worst-case cost, and on the way out settle or release, however that comes."""
        engine, request = self._engines[chat.model.id], chat.request

        async def count() -> MostTokens:
            return chat.counted(await engine.count_tokens(request))

        tokens = TokenTerms(chat.model.id, chat.bound, chat.least, count)
        async with self._admissions.admit(caller, request_id, [tokens]) as admitted:
            observed = self._metrics.begin(chat.model.id)
            async with admitted.hold(
                tokens,
                observed,
                stream=request.stream,
                client=client,
                check=partial(check_grammars, request.options),
            ) as held:
                yield EngineReply(engine, request, admitted, held, observed)
