"""`/anthropic/v1/messages` and its count of tokens: chats in Anthropic's words, on the same limits, holds and bills."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.requests import Request as StarletteRequest
from starlette.responses import Response

from billing.caller import Caller
from models.catalog import ChatModel
from models.engine import CONTINUES, EngineRequest
from models.errors import InvalidField, UnsupportedOption
from serve.chat.reply import ChatReply, EndedStream, ReplyForm, checked_object
from serve.chat.request import AskedChat, PreparedChat
from serve.chat.service import ChatService, terms_of_count
from serve.dialects.anthropic.conversation import chat_turns, tool_options
from serve.dialects.anthropic.request import AnthropicRequest, AnthropicThinking
from serve.dialects.documentation import GENERATING, AnthropicMessage, TokenCount, anthropic_operation
from serve.http.auth import MAX_KEY_LENGTH, Authenticate, MissingKey, authenticated_request, bearer_key
from serve.http.error_dialects import anthropic_body, anthropic_problem
from serve.http.errors import Problem
from serve.http.openapi import BEARER
from serve.http.replies import Client, PlainRoute
from serve.http.request_body import InvalidBody, Issue
from serve.money.admission import Admitted, ChargedReply

EFFORTS = ("low", "medium", "high", "xhigh", "max")
# Tokens of thinking up to which an effort is low, or medium.
LOW, MEDIUM = 4096, 16_384
_SAMPLING = ("temperature", "top_p", "top_k", "chat_template_kwargs")
_MESSAGE = re.compile(r"messages\[(\d+)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedMessage(AskedChat):
    """The chat that a message is. `origins` are the turns that its messages were made of."""

    origins: Sequence[int]

    def renamed(self, error: Exception) -> Exception:
        """An error of the chat, at the place in the caller's own body."""
        if isinstance(error, UnsupportedOption):
            found = _MESSAGE.match(error.option)
            place = self._place(int(found[1])) if found else (error.option,)
            return UnsupportedOption(".".join(map(str, place)), error.reason)
        if not isinstance(error, InvalidField):
            return error
        if error.loc[0] == "messages" and len(error.loc) > 1 and isinstance(error.loc[1], int):
            return InvalidField(self._place(error.loc[1]), error.message, kind=error.kind)
        if error.loc[0] == "tools" and error.loc[2:4] == ("function", "parameters"):
            loc = ("tools", error.loc[1], "input_schema", *error.loc[4:])
            return InvalidField(loc, error.message, kind=error.kind)
        if error.loc[0] == "response_format":
            loc = ("output_config", "format", *error.loc[2:])
            return InvalidField(loc, error.message, kind=error.kind)
        return error

    def _place(self, message: int) -> tuple[str | int, ...]:
        origin = self.origins[message] if message < len(self.origins) else -1
        return ("messages", origin, "content") if origin >= 0 else ("system",)


def asked_message(body: AnthropicRequest, model: ChatModel) -> AskedMessage:
    """Raises `InvalidField` or `UnsupportedOption` for what cannot be asked of a chat."""
    if body.mcp_servers:
        raise UnsupportedOption("mcp_servers", "this service calls no other; give the tools themselves")
    turns = chat_turns(body, takes_images="image_url" in model.capabilities.media)
    return AskedMessage(
        model=model.id,
        stream=body.stream,
        compression=body.compression,
        # It caps what the prompt leaves, and is never too much for the context.
        token_limit=min(body.max_tokens or model.context_length, model.context_length),
        token_limit_field=None,
        messages=turns.messages,
        options=_options(body, model),
        drops_effort=True,
        form="message",
        form_options={CONTINUES: True} if _is_begun(turns.messages) else {},
        origins=turns.origins,
    )


def _is_begun(messages: Sequence[Mapping[str, Any]]) -> bool:
    """A last message of the assistant's is the beginning of the reply."""
    last = messages[-1] if messages else {}
    return bool(last.get("role") == "assistant" and last.get("content") and not last.get("tool_calls"))


def _options(body: AnthropicRequest, model: ChatModel) -> dict[str, Any]:
    options = {name: value for name in _SAMPLING if (value := getattr(body, name)) is not None}
    if body.stop_sequences:
        options["stop"] = body.stop_sequences
    output = body.output_config
    if output is not None and output.format is not None:
        schema = {"name": "output", "schema": output.format.schema_}
        options["response_format"] = {"type": "json_schema", "json_schema": schema}
    effort = (output.effort if output is not None else None) or _effort(body.thinking)
    if effort in EFFORTS and model.capabilities.reasoning_effort:
        options["reasoning_effort"] = effort
    return options | tool_options(body)


def _effort(thinking: AnthropicThinking | None) -> str | None:
    if thinking is None or thinking.type not in ("enabled", "disabled"):
        return None
    budget = thinking.budget_tokens or 0
    # What is off is low: not every model that reasons can be kept from it.
    return "low" if budget < LOW else "medium" if budget < MEDIUM else "high"


_DELTA = b"event: message_delta\n"


class MessageForm(ReplyForm):
    """One message, with what it was charged in `usage` and `service`."""

    holds_back_last = True

    def __init__(self, request_id: str, asked: AskedMessage) -> None:
        self._request_id = request_id
        self._asked = asked

    def renamed(self, error: Exception) -> Exception:
        return self._asked.renamed(error)

    def checked(self, data: bytes) -> dict[str, Any]:
        return checked_object(data, listed="content")

    def completed(self, reply: dict[str, Any], charged: Mapping[str, Any]) -> bytes:
        return orjson.dumps({**reply, **_charged(charged)})

    def closing(self, stream: EndedStream, charged: Mapping[str, Any]) -> bytes:
        events = stream.held_back.split(b"\n\n")
        return b"\n\n".join(_priced(each, charged) if each.startswith(_DELTA) else each for each in events)

    def error(
        self, problem: Problem, charged: Mapping[str, Any], request: EngineRequest, last_piece: bytes
    ) -> bytes:
        body = anthropic_body(anthropic_problem(problem), self._request_id)
        return b"event: error\ndata: " + orjson.dumps({**body, **_charged(charged)}) + b"\n\n"


def _priced(event: bytes, charged: Mapping[str, Any]) -> bytes:
    fields = orjson.loads(event.partition(b"\ndata: ")[2])
    return _DELTA + b"data: " + orjson.dumps({**fields, **_charged(charged)})


def _charged(charged: Mapping[str, Any]) -> dict[str, Any]:
    """In Anthropic's count `input_tokens` are those that no cache had."""
    if not charged:
        return {}
    usage = charged["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    counted: dict[str, Any] = {
        "input_tokens": usage["prompt_tokens"] - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage["completion_tokens"],
    }
    if (reasoning := usage.get("completion_tokens_details")) is not None:
        counted["output_tokens_details"] = {"thinking_tokens": reasoning["reasoning_tokens"]}
    return {**charged, "usage": counted}


logger = logging.getLogger("pith.messages")
# A token of a text that people or programs wrote has a third of that.
MOST_COUNTED_CHARS_PER_TOKEN = 16


def anthropic_key(request: StarletteRequest) -> str:
    """The key of an `Authorization` header, which gateways are given, else of `x-api-key`. Raises `MissingKey`."""
    authorization = request.headers.get("authorization")
    key = request.headers.get("x-api-key", "").strip(" \t")
    # Clients that were given no token for it send a header without one.
    is_empty = authorization is not None and authorization.strip(" \t").lower() in ("", "bearer")
    if authorization is not None and not (is_empty and key):
        return bearer_key(authorization)
    if not key:
        raise MissingKey("send your project API key as: x-api-key: <API_KEY>")
    return key[: MAX_KEY_LENGTH + 1]


class CountReply(ChargedReply):
    """The tokens of a prompt, counted while this is sent."""

    def __init__(self, service: ChatService, caller: Caller, chat: PreparedChat, request_id: str) -> None:
        terms = [terms_of_count(chat)]
        # Free, and the dialect has no person in it.
        caller = replace(caller, person_required=False)
        super().__init__(service.admissions, caller, request_id, chat.route, terms, logger)
        self._service = service
        self._chat = chat

    async def answer(self, admitted: Admitted, client: Client) -> Response:
        counted = await self._service.count(self._chat, admitted, client)
        return Response(orjson.dumps({"input_tokens": counted}), media_type="application/json")


def _refuse_far_beyond(chat: PreparedChat) -> None:
    """A count is free, and takes seconds for megabytes. Raises `InvalidBody` for texts that no context has room for."""
    most = MOST_COUNTED_CHARS_PER_TOKEN * chat.model.context_length
    if sum(map(_text_chars, chat.request.messages)) > most:
        context = f"a context of {chat.model.context_length:,} tokens"
        message = f"prompt is too long: more than {most:,} characters, for {context}"
        raise InvalidBody(
            (Issue("prompt_too_long", ("body", "messages"), message, ctx={"max_characters": most}),)
        )


def _text_chars(message: Mapping[str, Any]) -> int:
    content = message.get("content") or ""
    if isinstance(content, str):
        return len(content)
    return sum(len(part["text"]) for part in content if part["type"] == "text")


def anthropic_message_routes(service: ChatService, authenticate: Authenticate) -> APIRouter:
    """The routes; what they do is `ChatService`'s."""
    routes = APIRouter(
        prefix="/anthropic/v1", tags=["anthropic"], dependencies=[BEARER], route_class=PlainRoute
    )

    async def prepared(request: Request) -> tuple[Caller, PreparedChat, AskedMessage]:
        caller, body = await authenticated_request(request, authenticate, AnthropicRequest)
        asked = asked_message(body, service.model(body.model))
        try:
            return caller, service.prepare(caller, asked), asked
        except (InvalidField, UnsupportedOption) as error:
            raise asked.renamed(error) from error

    @routes.post(
        "/messages",
        **anthropic_operation("messages", *GENERATING, 529, body=AnthropicRequest, reply=AnthropicMessage),
    )
    async def create_message(request: Request) -> Response:
        """A message in Anthropic's form. `max_tokens` is lowered to what the prompt leaves of the context."""
        caller, chat, asked = await prepared(request)
        id_ = request.state.request_id
        return ChatReply(service, caller, chat, id_, MessageForm(id_, asked))

    @routes.post(
        "/messages/count_tokens",
        **anthropic_operation(
            "messages-count-tokens",
            *GENERATING,
            529,
            body=AnthropicRequest,
            reply=TokenCount,
            is_billed=False,
        ),
    )
    async def count_message_tokens(request: Request) -> Response:
        """The prompt's tokens, tools included, as the model would be fed them. Free; it counts as a request."""
        caller, chat, _ = await prepared(request)
        _refuse_far_beyond(chat)
        return CountReply(service, caller, chat, request.state.request_id)

    return routes
