"""`/openai/v1/chat/completions`: the contract's chat with OpenAI's defaults, and usage in a stream only on request."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import orjson
from fastapi import APIRouter, Request
from pydantic import ConfigDict, Field
from starlette.responses import Response

from models.engine import CONTINUES, EngineRequest
from models.errors import InvalidField
from serve.chat.final_events import DONE, usage_event
from serve.chat.message_shapes import StreamOptions
from serve.chat.reply import ChatReply
from serve.chat.reply_form import ContractForm, EndedStream
from serve.chat.request import ChatCompletionRequest, ManyStops
from serve.chat.response import ChatCompletionResponse
from serve.chat.service import ChatService
from serve.dialects.documentation import GENERATING, openai_operation
from serve.dialects.meanings import without_default_temperature
from serve.dialects.openai.message_content import OpenAIMessage
from serve.dialects.openai.neutral_options import without_neutral
from serve.dialects.openai.tool_choice import OpenAIToolChoice, with_allowed_tools
from serve.http.auth import Authenticate, authenticated_request
from serve.http.error_dialects import openai_body, openai_problem
from serve.http.errors import Problem
from serve.http.openapi import BEARER
from serve.http.request_id import fresh_id
from serve.http.routes import PlainRoute

MAX_MESSAGES = 2048
# As OpenAI takes; an engine with few places refuses so many.
MAX_CHOICES = 128
# More than any context; what is left of the model's is the limit.
MAX_TOKENS_BOUND = 2**24
# Log probabilities, and bytes of repeated prompts, in one reply: the engine's replica builds it in one piece.
MAX_LISTED = 2**20

TokenLimit = Annotated[int, Field(ge=1, le=MAX_TOKENS_BOUND)]


class OpenAIChatRequest(ChatCompletionRequest):
    """A chat to complete, as OpenAI's clients send it."""

    model_config = ConfigDict(json_schema_extra=without_default_temperature)

    messages: list[OpenAIMessage] = Field(  # type: ignore[assignment]
        min_length=1, max_length=MAX_MESSAGES
    )
    # None: what the prompt leaves of the model's context.
    max_tokens: TokenLimit | None = None  # type: ignore[assignment]
    max_completion_tokens: TokenLimit | None = None
    min_tokens: int | None = Field(default=None, ge=0, le=MAX_TOKENS_BOUND)
    # vLLM's: the reply goes on where the last message, the assistant's, ends.
    continue_final_message: bool | None = None
    n: int | None = Field(default=None, ge=1, le=MAX_CHOICES)
    stop: ManyStops | None = None
    tool_choice: OpenAIToolChoice | None = None  # type: ignore[assignment]
    structured_outputs: dict[str, Any] | None = None
    default_temperature: ClassVar[float | None] = None
    drops_effort: ClassVar[bool] = True
    takes_constraints: ClassVar[bool] = True

    @property
    def form_options(self) -> dict[str, Any]:
        """Raises `InvalidField` where there is nothing to continue."""
        if not self.continue_final_message:
            return {}
        last = self.messages[-1]
        if last.role != "assistant" or last.tool_calls or not last.content:
            message = "needs a last message of the assistant, with content and without calls"
            raise InvalidField((CONTINUES,), message)
        return {CONTINUES: True}

    @property
    def token_limit(self) -> int | None:
        """Where none is given, no more than the log probabilities that a reply may list allow."""
        given = super().token_limit
        return MAX_LISTED // self._listed_at_each if given is None and self.logprobs else given

    def option_fields(self) -> dict[str, Any]:
        """Raises `InvalidField` where a reply could list too much."""
        if self.logprobs and (self.token_limit or 0) * self._listed_at_each > MAX_LISTED:
            message = f"the reply could list more than {MAX_LISTED} log probabilities; ask for fewer tokens"
            raise InvalidField(("logprobs",), message, kind="too_much")
        return with_allowed_tools(without_neutral(super().option_fields()))

    @property
    def _listed_at_each(self) -> int:
        """Of each token of a choice."""
        return (self.n or 1) * (1 + (self.top_logprobs or 0))

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with its usage."""
        return asks_for_usage(self.stream_options)


def asks_for_usage(options: StreamOptions | None) -> bool:
    return options is not None and bool(options.include_usage or options.continuous_usage_stats)


class OpenAIChatForm(ContractForm):
    """OpenAI's chat completions. `service` is in the reply, and beside the usage of a stream that asks for it."""

    def __init__(self, *, includes_usage: bool) -> None:
        self._includes_usage = includes_usage

    def closing(self, stream: EndedStream, charged: Mapping[str, Any]) -> bytes:
        if not self._includes_usage:
            return DONE
        return usage_event(charged, stream.request, stream.first_event) + DONE

    def error(self, problem: Problem, charged: Mapping[str, Any], request: EngineRequest) -> bytes:
        body = openai_body(openai_problem(problem))
        return b"data: " + orjson.dumps({**body, **charged}) + b"\n\n"


def openai_chat_routes(service: ChatService, authenticate: Authenticate) -> APIRouter:
    """The route; what it does is `ChatService`'s."""
    routes = APIRouter(prefix="/openai/v1", tags=["openai"], dependencies=[BEARER], route_class=PlainRoute)

    @routes.post(
        "/chat/completions",
        **openai_operation(
            "chat/create", *GENERATING, 503, body=OpenAIChatRequest, reply=ChatCompletionResponse
        ),
    )
    async def create_openai_chat_completion(request: Request) -> Response:
        """A chat completion with OpenAI's defaults: `max_tokens` is what is left, a stream tells usage on request."""
        caller, body = await authenticated_request(request, authenticate, OpenAIChatRequest)
        chat = service.prepare(caller, body, fresh_id(), form_options=body.form_options)
        form = OpenAIChatForm(includes_usage=body.includes_usage)
        return ChatReply(service, caller, chat, request.state.request_id, form)

    return routes
