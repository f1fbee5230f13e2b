"""The route of chat completions, and its answer's shape."""

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from serve.chat.reply import ChatReply
from serve.chat.request import ChatCompletionRequest
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
from serve.http.replies import PlainRoute
from serve.money.prices import Billing, Metering
from serve.prompt_compression.compressed_chat import document_compression, document_header


def _document_details(schema: dict[str, Any]) -> None:
    schema["properties"]["prompt_tokens_details"] = {
        "type": "object",
        "description": "What is known of the tokens read.",
        "properties": {
            "cached_tokens": {
                "type": "integer",
                "description": "Those of them that the engine's prefix cache had; 0 where it had none.",
            }
        },
        "required": ["cached_tokens"],
    }


class Usage(BaseModel):
    """Tokens of one request."""

    model_config = ConfigDict(extra="allow", json_schema_extra=_document_details)

    prompt_tokens: int = Field(description="Tokens read.")
    completion_tokens: int = Field(description="Tokens generated, over all choices.")
    total_tokens: int = Field(description="Their sum.")


def _document_optional(schema: dict[str, Any]) -> None:
    document_compression(schema)
    words = "What was `asked` and what was `given` and charged, where a budget had no room for the first; else absent."
    offer = {"type": "object", "additionalProperties": {"type": "string"}}
    offers = {"asked": offer, "given": offer}
    schema["properties"]["landing"] = {"type": "object", "description": words, "properties": offers}


class ServiceBlock(BaseModel):
    """The fields that this service adds to an OpenAI completion."""

    model_config = ConfigDict(extra="allow", json_schema_extra=_document_optional)

    billing: Billing = Field(description="The price of this request.")
    metering: Metering = Field(description="The record of this request.")


_COMPLETION_EXAMPLE: dict[str, Any] = {
    "id": "chatcmpl-5f0c1a",
    "object": "chat.completion",
    "created": 1795000000,
    "model": "example-model",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}],
    "usage": {
        "prompt_tokens": 11,
        "completion_tokens": 3,
        "total_tokens": 14,
        "prompt_tokens_details": {"cached_tokens": 0},
    },
    "service": {
        "billing": {
            "input_price_per_mtok": 0.1,
            "output_price_per_mtok": 0.4,
            "minimum_request_charge_usd": 0.00001,
            "minimum_applied": True,
            "request_cost_usd": 0.00001,
        },
        "metering": {"persisted": True, "status": "persisted"},
    },
}


class ChatCompletionResponse(BaseModel):
    """An OpenAI completion with its usage, its price and whether it was recorded."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [_COMPLETION_EXAMPLE]})

    id: str = Field(description="Id of the completion.")
    object: str = Field(description="`chat.completion`.")
    created: int = Field(description="Unix time in seconds.")
    model: str = Field(description="The model that answered.")
    choices: list[dict[str, Any]] = Field(description="OpenAI choice objects.")
    usage: Usage = Field(description="Tokens of this request.")
    service: ServiceBlock = Field(description="Billing and metering of this request.")


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
        chat = service.prepare(caller, body.asked())
        return ChatReply(service, caller, chat, request.state.request_id)

    return routes
