"""What every documented route shares: the error body, the request id header, the bearer scheme."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Security
from fastapi.security import HTTPBearer
from pydantic import BaseModel

from serve.contract import ErrorBody

REQUEST_ID_HEADER: dict[str, Any] = {
    "X-Request-ID": {
        "description": "The request's correlation id: the caller's where it was usable, else a new one.",
        "schema": {"type": "string", "maxLength": 128},
    }
}
_WHEN = {
    400: "Unsupported chat option.",
    401: "Missing bearer key.",
    402: "Workspace quota exceeded or billing disabled.",
    403: "Invalid or revoked key.",
    422: "Malformed JSON, invalid fields, unsupported model, or request too large.",
    429: "Project rate limit exceeded.",
    500: "Unexpected server error.",
    502: "The inference service returned an invalid response.",
    503: "The service that this route needs is unavailable; `Retry-After` says when to try again.",
}
RATE_LIMIT_HEADERS: dict[str, Any] = {
    f"x-ratelimit-{what}-{kind}": {
        "description": f"{words} of the project's {kind} a minute; only where it has such a limit.",
        "schema": {"type": "string"},
    }
    for kind in ("requests", "tokens")
    for what, words in (
        ("limit", "The limit"),
        ("remaining", "What is left"),
        ("reset", "Seconds to the reset"),
    )
}
_RETRY_AFTER = {
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}}
}
_CHALLENGE = {"WWW-Authenticate": {"description": "`Bearer`.", "schema": {"type": "string"}}}


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The documentation of a route's errors."""
    extra = {401: _CHALLENGE, 429: {**_RETRY_AFTER, **RATE_LIMIT_HEADERS}, 503: _RETRY_AFTER}
    return {
        status: {
            "model": ErrorBody,
            "description": _WHEN[status],
            "headers": {**REQUEST_ID_HEADER, **extra.get(status, {})},
        }
        for status in statuses
    }


# The middleware reads it; declared as data, it adds no validation of its own to a route.
REQUEST_ID_PARAMETER: dict[str, Any] = {
    "name": "X-Request-ID",
    "in": "header",
    "required": False,
    "description": "Correlation id, at most 128 printable ASCII characters; a longer one is replaced.",
    "schema": {"type": "string", "maxLength": 128},
}


# The scheme is for the documentation: `serve.auth` reads the header, so that its errors have the contract's shape.
BEARER = Security(HTTPBearer(auto_error=False, description="A project API key.", scheme_name="ProjectKey"))


def document_request_models(api: FastAPI, *models: type[BaseModel]) -> None:
    """Add to the schema the request shapes that routes read themselves, for one strict parse of the raw bytes."""
    generate = api.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        for model in models:
            schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas.update(schema.pop("$defs", {}))
            schemas[model.__name__] = schema
        return document

    api.openapi = openapi  # type: ignore[method-assign]
