"""The shapes of the HTTP interface's responses as `/openapi.json` documents them; requests have files of their own.

Money is a float in these shapes alone: everywhere else it is an integer of a named unit.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from billing.usage import MeteringStatus


class Model(BaseModel):
    """A model and its prices."""

    id: str = Field(description="What a request names in `model`.")
    name: str = Field(description="Display name.")
    context_length: int = Field(description="The most tokens of prompt and reply together.")
    input_price_per_mtok: float = Field(description="USD per million input tokens.")
    output_price_per_mtok: float = Field(description="USD per million output tokens.")
    minimum_request_charge_usd: float = Field(
        description="The least that a successfully metered request with this model costs, in USD."
    )


class CatalogModel(Model):
    """A model as the public catalog shows it."""

    blurb: str = Field(description="What the model is for, in a sentence or two.")
    is_default: bool = Field(description="Whether a request that names no model gets this one.")


class Catalog(BaseModel):
    """The public models and the version of their price list."""

    pricing_version: int = Field(description="Rises when a price changes; every charge names it.")
    collection_threshold_cents: int = Field(ge=1, description="Charges are collected from this sum on.")
    models: list[CatalogModel] = Field(description="In the operator's order; the first is the default.")


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


class ValidationIssue(BaseModel):
    """One thing that is wrong with a request, and where."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="Machine-readable kind of the issue.")
    loc: list[str | int] = Field(
        description='Path to what is wrong, such as `["body", "messages", 0, "role"]`.'
    )
    msg: str = Field(description="What is wrong, in words.")
    input: Any = Field(default=None, description="The value found, if it is short.")
    ctx: dict[str, Any] | None = Field(default=None, description="The bounds or choices that were not met.")


class OpenAIError(BaseModel):
    """The same error in the form that OpenAI's clients print."""

    message: str = Field(description="What went wrong.")
    type: str = Field(description="Class of error, such as `invalid_request_error`.")
    param: str | None = Field(default=None, description="The field at fault, if one is.")
    code: str | None = Field(default=None, description="Machine-readable code.")


class ErrorBody(BaseModel):
    """Every error. `detail` is a list of issues where fields are invalid, and else a sentence."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "detail": "store: stored completions are not offered here; omit it or send false",
                    "error": {
                        "message": "store: stored completions are not offered here; omit it or send false",
                        "type": "invalid_request_error",
                        "param": "store",
                        "code": "unsupported_option",
                    },
                }
            ]
        }
    )

    detail: str | list[ValidationIssue] = Field(description="What went wrong.")
    error: OpenAIError = Field(description="The same for OpenAI's clients.")
