"""The dialects in `/openapi.json`: ours in full, the dialect's own by reference."""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from serve.chat.request import ChatCompletionRequest
from serve.chat.route import ServiceBlock, Usage
from serve.http.openapi import (
    RATE_LIMIT_HEADERS,
    REQUEST_ID_HEADER,
    REQUEST_ID_PARAMETER,
    OpenAIErrorBody,
    dialect_errors,
    json_body,
    metering_header,
)

OPENAI_REFERENCE = "https://platform.openai.com/docs/api-reference"
ANTHROPIC_REFERENCE = "https://docs.anthropic.com/en/api"

# Of what is generated.
GENERATING = (400, 402, 404, 413, 429, 502)


class AnthropicError(BaseModel):
    """An error in Anthropic's form."""

    type: str = Field(description="Class of error, such as `invalid_request_error`.")
    message: str = Field(description="What went wrong.")


class AnthropicErrorBody(BaseModel):
    """Every error under `/anthropic`."""

    type: Literal["error"] = Field(description="Always `error`.")
    error: AnthropicError = Field(description="What went wrong.")
    request_id: str | None = Field(description="The request's correlation id.")


def anthropic_operation(
    reference: str,
    *statuses: int,
    body: type[BaseModel] | None = None,
    reply: type[BaseModel] | None = None,
    is_billed: bool = True,
    path_parameters: Sequence[str] = (),
) -> dict[str, Any]:
    """`openai_operation` for a route of Anthropic's dialect; `reference` is its page below Anthropic's."""
    page = f"{ANTHROPIC_REFERENCE}/{reference}"
    return {
        **_operation(page, body, path_parameters),
        "responses": {
            200: _reply(page, reply, is_billed=is_billed),
            **dialect_errors(AnthropicErrorBody, 401, 500, *statuses),
        },
    }


def openai_operation(
    reference: str,
    *statuses: int,
    body: type[BaseModel] | None = None,
    reply: type[BaseModel] | None = None,
    is_billed: bool = True,
    needs_key: bool = True,
    path_parameters: Sequence[str] = (),
) -> dict[str, Any]:
    """Options of a route of OpenAI's dialect. `reference` is its page below OpenAI's reference; `statuses` are its
    errors beyond 401 and 500; its endpoint reads `path_parameters` from the request, since one that declares them would
    be documented with a 422 that does not exist."""
    page = f"{OPENAI_REFERENCE}/{reference}"
    operation = _operation(page, body, path_parameters)
    if not needs_key:
        # Beside the key that the routes' router declares: one of the two is enough.
        operation["openapi_extra"]["security"] = [{}]
    return {
        **operation,
        "responses": {
            200: _reply(page, reply, is_billed=is_billed),
            **dialect_errors(OpenAIErrorBody, 401, 500, *statuses),
        },
    }


def _operation(page: str, body: type[BaseModel] | None, path_parameters: Sequence[str]) -> dict[str, Any]:
    in_path = [_path_parameter(name) for name in path_parameters]
    extra: dict[str, Any] = {"parameters": [*in_path, REQUEST_ID_PARAMETER], "externalDocs": {"url": page}}
    if body is not None:
        extra["requestBody"] = json_body(body.__name__)
    return {"response_model": None, "openapi_extra": extra}


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _reply(page: str, reply: type[BaseModel] | None, *, is_billed: bool) -> dict[str, Any]:
    metering = metering_header("Whether usage is recorded.") if is_billed else {}
    schema = {"type": "object", "additionalProperties": True}
    shape = {"content": {"application/json": {"schema": schema}}} if reply is None else {"model": reply}
    return {
        "description": f"As {page} has it, with `service` where it is billed.",
        "headers": {**REQUEST_ID_HEADER, **RATE_LIMIT_HEADERS, **metering},
        **shape,
    }


MEANINGS = {
    "messages": "The conversation, in the dialect's form.",
    "prompt": "A text, a list of token ids, or up to 128 of them.",
    "input": "A text, or items: messages, calls of tools and what they gave, reasoning.",
    "max_tokens": "Most tokens to generate.",
    "max_output_tokens": "Most tokens to generate, reasoning included.",
    "min_tokens": "No end before so many tokens.",
    "n": "How many replies; all are charged.",
    "best_of": "As `n`: no more than are returned can be asked for.",
    "echo": "Whether the prompt comes before what was generated.",
    "suffix": "Not offered: null or empty.",
    "stop": "Texts that end the reply, and are not part of it.",
    "stop_sequences": "Texts that end the reply, and are not part of it.",
    "stream": "True answers with server-sent events.",
    "logprobs": "How many of the likeliest tokens are listed at each position.",
    "continue_final_message": "Whether the reply goes on where the last message, the assistant's, ends.",
    "system": "What comes before the conversation.",
    "instructions": "What comes before the conversation.",
    "tool_choice": "Whether a tool is called, and which.",
    "thinking": "Whether the model reasons before its reply.",
    "reasoning": "How much to reason before the reply, if the model supports it.",
    "output_config": "How much effort, and the form of the reply.",
    "structured_outputs": "vLLM's: one of `regex`, `choice`, `grammar` and `json`, which the reply is held to; "
    "`guided_regex` and the others are the same.",
    "text": "The form of the reply: text, or JSON by a schema.",
    "mcp_servers": "Not offered: null or empty.",
    "chat_template_kwargs": "For the model's chat template.",
    "include": "What else the reply has.",
    "metadata": "Names with values, repeated in the reply; `tags` are counted in budgets.",
    "store": "Whether it is kept, to be referred to.",
    "previous_response_id": "A kept response that this one goes on from.",
    "background": "Not offered: false.",
    "truncation": "Without effect: a prompt that does not fit is refused.",
    "max_tool_calls": "Repeated in the reply, and without effect: the client calls the tools.",
    "prompt_cache_key": "Taken, and not used.",
    "safety_identifier": "The person whom it is for: only a keyed hash is kept.",
    "user": "The same, where there is no `safety_identifier`.",
}


def with_meanings(schema: dict[str, Any]) -> None:
    """Adds to a schema what its fields do not say themselves."""
    for name, field in schema.get("properties", {}).items():
        same = ChatCompletionRequest.model_fields.get(name)
        said = MEANINGS.get(name) or (same.description if same is not None else None)
        if said and "description" not in field:
            field["description"] = said


def without_default_temperature(schema: dict[str, Any]) -> None:
    """The same for chats, of which the contract's temperature is 0 unless it is given, and a dialect's the engine's."""
    with_meanings(schema)
    temperature = schema["properties"]["temperature"]
    temperature.pop("default", None)
    temperature["description"] = (
        "Randomness of the sampling; 0 takes the likeliest token. Default: the engine's own."
    )


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
