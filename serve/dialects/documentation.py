"""How a dialect's routes stand in `/openapi.json`: what is ours in full, what is the dialect's by reference."""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field

from serve.http.openapi import (
    RATE_LIMIT_HEADERS,
    REQUEST_ID_HEADER,
    REQUEST_ID_PARAMETER,
    OpenAIErrorBody,
    json_body,
    metering_header,
)

OPENAI_REFERENCE = "https://platform.openai.com/docs/api-reference"
ANTHROPIC_REFERENCE = "https://docs.anthropic.com/en/api"

# Of what is generated.
GENERATING = (400, 402, 404, 413, 429, 502)

_WHEN = {
    400: "What is wrong with the request, the context that it does not fit included.",
    401: "No key, or a key that is wrong or revoked.",
    402: "Workspace quota exceeded or billing disabled.",
    404: "No such model or object.",
    409: "The object is in a state in which this cannot be done.",
    413: "The body is too large.",
    429: "Project rate limit exceeded.",
    500: "Unexpected server error.",
    502: "The inference service returned an invalid response.",
    503: "The service that this route needs is unavailable; `Retry-After` says when to try again.",
    507: "The server has no room for the file.",
    529: "The service that this route needs is unavailable; `Retry-After` says when to try again.",
}


class AnthropicError(BaseModel):
    """What went wrong, in Anthropic's form."""

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
            **_errors(AnthropicErrorBody, 401, 500, *statuses),
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
            **_errors(OpenAIErrorBody, 401, 500, *statuses),
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


def _errors(body: type[BaseModel], *statuses: int) -> dict[int, dict[str, Any]]:
    return {
        status: {"model": body, "description": _WHEN[status], "headers": REQUEST_ID_HEADER}
        for status in sorted(statuses)
    }
