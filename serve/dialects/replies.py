"""What the dialects' routes answer, as `/openapi.json` documents it: the fields that every reply has, and pith's own
beside them. What choices, items and blocks hold is the dialect's own, by the page that the route names."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from serve.chat.response import ServiceBlock, Usage

_OPEN = ConfigDict(extra="allow")


class OpenAICompletion(BaseModel):
    """A completion in OpenAI's form; a stream has it in pieces, and `usage` and `service` in the last, on request."""

    model_config = _OPEN

    id: str
    object: Literal["text_completion"]
    created: int = Field(description="Unix time.")
    model: str
    choices: list[dict[str, Any]] = Field(description="`n` for each prompt, in their order.")
    usage: Usage
    service: ServiceBlock


class OpenAIResponse(BaseModel):
    """A response in OpenAI's form; the last event of a stream has all of it."""

    model_config = _OPEN

    id: str = Field(description="For `previous_response_id`, where it is kept.")
    object: Literal["response"]
    created_at: float = Field(description="Unix time.")
    status: str = Field(description="`completed`, or `incomplete` with its reason.")
    model: str
    output: list[dict[str, Any]] = Field(description="Items: messages, calls of tools, reasoning.")
    usage: dict[str, Any] | None = Field(
        description="`input_tokens`, `output_tokens`, `total_tokens` and details."
    )
    service: ServiceBlock


class AnthropicUsage(BaseModel):
    """Tokens of one request."""

    model_config = _OPEN

    input_tokens: int = Field(description="Tokens read, without those of the prefix cache.")
    output_tokens: int


class AnthropicMessage(BaseModel):
    """A message in Anthropic's form; a stream's `message_delta` has the usage and `service`."""

    model_config = _OPEN

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]] = Field(description="Blocks: text, thinking, uses of tools.")
    stop_reason: str | None
    stop_sequence: str | None = None
    usage: AnthropicUsage
    service: ServiceBlock


class TokenCount(BaseModel):
    """A prompt's tokens."""

    model_config = _OPEN

    input_tokens: int
