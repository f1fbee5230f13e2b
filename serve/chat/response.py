"""What a chat completion answers, as `/openapi.json` documents it. Money is a float only in such shapes."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from serve.money.charge_shapes import Billing, Metering
from serve.prompt_compression.report import document_compression


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


class ServiceBlock(BaseModel):
    """What this service adds to an OpenAI completion."""

    model_config = ConfigDict(extra="allow", json_schema_extra=document_compression)

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
