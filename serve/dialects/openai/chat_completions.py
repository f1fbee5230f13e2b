"""Messages as OpenAI's clients send them: parts under a response's names, bare strings, and an assistant's thoughts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationInfo
from starlette.responses import Response

from models.engine import CONTINUES, EngineRequest
from models.errors import InvalidField
from models.options.options import reason_to_refuse
from serve.chat.message_shapes import Message, Objects, StreamOptions, text_or_parts
from serve.chat.reply import DONE, ChatReply, EndedStream, ReplyForm, event
from serve.chat.request import AskedChat, ChatCompletionRequest, ManyStops, read_tool_choice
from serve.chat.route import ChatCompletionResponse
from serve.chat.service import ChatService
from serve.dialects.documentation import GENERATING, openai_operation, without_default_temperature
from serve.http.auth import Authenticate, authenticated_request
from serve.http.error_dialects import openai_body, openai_problem
from serve.http.errors import Problem
from serve.http.openapi import BEARER
from serve.http.replies import PlainRoute

_TEXTS = frozenset({"input_text", "output_text"})
# Of an assistant's earlier turn; templates take them from `reasoning` alone, if at all.
_THOUGHTS = frozenset({"thinking", "redacted_thinking", "reasoning"})


def _content(value: Any, info: ValidationInfo) -> Any:
    if not isinstance(value, list):
        return text_or_parts(value)
    parts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in value]
    drops = info.data.get("role") == "assistant"
    return [_part(part) for part in text_or_parts(parts) if not (drops and _is_thought(part))]


def _is_thought(part: dict[str, Any]) -> bool:
    kind = part.get("type")
    return isinstance(kind, str) and kind in _THOUGHTS


def _part(part: dict[str, Any]) -> dict[str, Any]:
    kind = part.get("type")
    return {**part, "type": "text"} if isinstance(kind, str) and kind in _TEXTS else part


class OpenAIMessage(Message):
    """A `Message` whose parts may have other names and forms."""

    content: Annotated[str | list[dict[str, Any]] | None, PlainValidator(_content)] = None


# An empty one asks for a search with OpenAI's defaults, and 0 for the likelihood of the prompt's own tokens.
ASKS_ALWAYS = frozenset({"web_search_options", "prompt_logprobs"})


def without_neutral(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options without those that are refused elsewhere and ask for nothing as they are. Nothing is stored whatever
    `store` says, and no model here takes a `verbosity`."""
    return {name: value for name, value in options.items() if not _is_neutral(name, value)}


def _is_neutral(name: str, value: Any) -> bool:
    if name == "verbosity" or (name == "store" and value is True):
        return True
    if name in ASKS_ALWAYS or reason_to_refuse(name) is None:
        return False
    return not value or (name == "function_call" and value == "none")


WORDS = ("none", "auto", "required")
ALLOWED = "allowed_tools"
MAX_TOOLS = 128


class AllowedTools(BaseModel):
    """Some of the tools, of which the model may call one, or must."""

    model_config = ConfigDict(strict=True, extra="ignore")

    mode: Literal["auto", "required"] = "auto"
    tools: Objects = Field(max_length=MAX_TOOLS)


class AllowedToolsChoice(BaseModel):
    """A chat's choice has them in an object of their own, a response's beside its type."""

    model_config = ConfigDict(strict=True, extra="ignore")

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


def choice_word(choice: Any) -> Any:
    """The word that an object stands for, as in `{"type": "auto"}`; else the choice as it is."""
    kind = choice.get("type") if isinstance(choice, Mapping) else None
    return kind if isinstance(kind, str) and kind in WORDS else choice


def allowed_names(tools: list[Mapping[str, Any]]) -> frozenset[str]:
    """The functions that a list of allowed tools names, as a chat or as a response does."""
    functions = (each.get("function", each) for each in tools)
    names = (each.get("name") for each in functions if isinstance(each, Mapping))
    return frozenset(name for name in names if isinstance(name, str))


def with_allowed_tools(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with only the tools that the choice allows. Raises `InvalidField` where it allows none."""
    choice, tools = options.get("tool_choice"), options.get("tools") or []
    if not isinstance(choice, Mapping) or choice["type"] != ALLOWED:
        return dict(options)
    allowed = choice[ALLOWED]
    names = allowed_names(allowed["tools"])
    kept = [tool for tool in tools if (tool.get("function") or {}).get("name") in names]
    if not kept:
        raise InvalidField(("tool_choice", ALLOWED, "tools"), "has none of the functions in tools")
    return {**options, "tools": kept, "tool_choice": allowed["mode"]}


def _read(value: Any) -> str | dict[str, Any]:
    choice = choice_word(value)
    if isinstance(choice, dict) and choice.get("type") == ALLOWED:
        return AllowedToolsChoice.model_validate(choice).model_dump()
    return read_tool_choice(choice)


OpenAIToolChoice = Annotated[str | dict[str, Any], PlainValidator(_read)]


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

    def asked(self) -> AskedChat:
        """Raises `InvalidField` where there is nothing to continue, or a reply could list too much."""
        return replace(
            super().asked(),
            default_temperature=None,
            drops_effort=True,
            takes_constraints=True,
            form_options=self.form_options,
        )

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
        """The limit given, else no more than the log probabilities that a reply may list allow."""
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
        """Log probabilities that are listed of each token of a choice."""
        return (self.n or 1) * (1 + (self.top_logprobs or 0))

    @property
    def includes_usage(self) -> bool:
        """True if a stream ends with its usage."""
        return asks_for_usage(self.stream_options)


def asks_for_usage(options: StreamOptions | None) -> bool:
    return options is not None and bool(options.include_usage or options.continuous_usage_stats)


class OpenAIChatForm(ReplyForm):
    """OpenAI's chat completions. `service` is in the reply, and beside the usage of a stream that asks for it."""

    def __init__(self, *, includes_usage: bool) -> None:
        self._includes_usage = includes_usage

    def closing(self, stream: EndedStream, charged: Mapping[str, Any]) -> bytes:
        if not self._includes_usage:
            return DONE
        return super().closing(stream, charged)

    def error(
        self, problem: Problem, charged: Mapping[str, Any], request: EngineRequest, last_piece: bytes
    ) -> bytes:
        body = openai_body(openai_problem(problem))
        return event({**body, **charged})


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
        chat = service.prepare(caller, body.asked())
        form = OpenAIChatForm(includes_usage=body.includes_usage)
        return ChatReply(service, caller, chat, request.state.request_id, form)

    return routes
