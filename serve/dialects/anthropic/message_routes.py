"""`/anthropic/v1/messages` and its count of tokens: chats in Anthropic's words, on the same limits, holds and bills."""

import logging
from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.requests import Request as StarletteRequest
from starlette.responses import Response
from starlette.types import Send

from billing.caller import Caller
from models.errors import InvalidField, UnsupportedOption
from serve.chat.reply import ChatReply
from serve.chat.service import ChatService, PreparedChat
from serve.dialects.anthropic.asked_message import AskedMessage, asked_message
from serve.dialects.anthropic.message_body import AnthropicRequest
from serve.dialects.anthropic.message_reply import MessageForm
from serve.dialects.documentation import GENERATING, anthropic_operation
from serve.dialects.replies import AnthropicMessage, TokenCount
from serve.http.auth import MAX_KEY_LENGTH, Authenticate, authenticated_request, bearer_key
from serve.http.errors import MissingKey
from serve.http.openapi import BEARER
from serve.http.replies import Client, WorkingReply
from serve.http.request_body import InvalidBody, Issue
from serve.http.request_id import fresh_id
from serve.http.routes import PlainRoute

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


class MessageReply(ChatReply):
    """A `ChatReply` whose errors name the fields of a message's body."""

    def __init__(
        self, service: ChatService, caller: Caller, chat: PreparedChat, request_id: str, asked: AskedMessage
    ) -> None:
        super().__init__(service, caller, chat, request_id, MessageForm(request_id))
        self._asked = asked

    async def work(self, send: Send, client: Client) -> Response | None:
        try:
            return await super().work(send, client)
        except (InvalidField, UnsupportedOption) as error:
            raise self._asked.renamed(error) from error


class CountReply(WorkingReply):
    """The tokens of a prompt, counted while this is sent."""

    def __init__(self, service: ChatService, caller: Caller, chat: PreparedChat, request_id: str) -> None:
        super().__init__(request_id, logger)
        self._service = service
        self._caller = caller
        self._chat = chat

    async def work(self, send: Send, client: Client) -> Response | None:
        counted = await self._service.count(self._caller, self._chat, self.request_id, client)
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
            chat = service.prepare(caller, asked, fresh_id(), form="message", form_options=asked.form_options)
            return caller, chat, asked
        except (InvalidField, UnsupportedOption) as error:
            raise asked.renamed(error) from error

    @routes.post(
        "/messages",
        **anthropic_operation("messages", *GENERATING, 529, body=AnthropicRequest, reply=AnthropicMessage),
    )
    async def create_message(request: Request) -> Response:
        """A message in Anthropic's form. `max_tokens` is lowered to what the prompt leaves of the context."""
        caller, chat, asked = await prepared(request)
        return MessageReply(service, caller, chat, request.state.request_id, asked)

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
