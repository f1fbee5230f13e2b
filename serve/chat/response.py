"""What a chat completion answers, as `/openapi.json` documents it. Money is a float only in such shapes."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from billing.usage import MeteringStatus


class Usage(BaseModel):
    """Tokens of one request."""

    model_config = ConfigDict(extra="allow")

    prompt_tokens: int = Field(description="Tokens read.")
    completion_tokens: int = Field(description="Tokens generated, over all choices.")
    total_tokens: int = Field(description="Their sum.")


class Metering(BaseModel):
    """Whether the usage was recorded."""

    persisted: bool = Field(description="True once it is committed in the ledger.")
    status: MeteringStatus = Field(
        description="`persisted`: in the ledger. `degraded`: kept on disk and brought to it later, exactly "
        "once. `not_applicable`: this project is not metered."
    )


class Billing(BaseModel):
    """What a request cost and why."""

    input_price_per_mtok: float = Field(description="USD per million input tokens of the selected model.")
    output_price_per_mtok: float = Field(description="USD per million output tokens of the selected model.")
    minimum_request_charge_usd: float = Field(description="The selected model's minimum per request, in USD.")
    minimum_applied: bool = Field(description="True when the minimum determined the cost.")
    request_cost_usd: float = Field(description="The greater of the tokens' price and the minimum, in USD.")


class ServiceBlock(BaseModel):
    """What this service adds to an OpenAI completion."""

    billing: Billing = Field(description="The price of this request.")
    metering: Metering = Field(description="The record of this request.")


_COMPLETION_EXAMPLE: dict[str, Any] = {
    "id": "chatcmpl-5f0c1a",
    "object": "chat.completion",
    "created": 1795000000,
    "model": "example-model",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14},
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
