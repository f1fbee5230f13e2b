"""Chat completions: the request's checks here, the reply in `ChatReply`, the money in `serve.chat.service`."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from serve.chat.reply import ChatReply
from serve.chat.request import ChatCompletionRequest
from serve.chat.response import ChatCompletionResponse
from serve.chat.service import ChatService
from serve.http.auth import Authenticate, authenticated_request
from serve.http.openapi import (
    BEARER,
    RATE_LIMIT_HEADERS,
    REQUEST_ID_HEADER,
    REQUEST_ID_PARAMETER,
    error_responses,
    json_body,
    metering_header,
)
from serve.http.request_id import fresh_id
from serve.http.routes import PlainRoute
from serve.prompt_compression.report import document_header

_OK: dict[str, Any] = {
    "description": "The completion; server-sent events when `stream` is true, the last one with usage and billing.",
    "headers": {
        **REQUEST_ID_HEADER,
        **RATE_LIMIT_HEADERS,
        **metering_header(
            "Whether usage is recorded. When streaming it tells of the hold; the last event tells of the settlement."
        ),
        **document_header(),
    },
    "content": {
        "text/event-stream": {
            # No schema: this version of OpenAPI has none for events.
            "example": 'data: {"object":"chat.completion.chunk","choices":[…]}\n\n'
            'data: {"object":"chat.completion.chunk","choices":[],"usage":{…},"service":{…}}\n\ndata: [DONE]\n\n',
        }
    },
}


def chat_routes(service: ChatService, authenticate: Authenticate) -> APIRouter:
    routes = APIRouter(tags=["chat"], dependencies=[BEARER], route_class=PlainRoute)

    @routes.post(
        "/v1/chat/completions",
        response_model=ChatCompletionResponse,
        responses={200: _OK, **error_responses(400, 401, 402, 403, 422, 429, 500, 502, 503)},
        openapi_extra={
            "requestBody": json_body("ChatCompletionRequest"),
            "parameters": [REQUEST_ID_PARAMETER],
        },
    )
    async def create_chat_completion(request: Request) -> Response:
        """OpenAI-compatible chat completion; every reply carries its usage, its price and its metering status."""
        caller, body = await authenticated_request(request, authenticate, ChatCompletionRequest)
        chat = service.prepare(caller, body, fresh_id())
        return ChatReply(service, caller, chat, request.state.request_id)

    return routes
