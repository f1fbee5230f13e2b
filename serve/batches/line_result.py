"""What became of a line, as one line of an output or error file."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from serve.http.error_dialects import openai_body, openai_problem
from serve.http.errors import Problem

# Of an error, which may repeat much of what was sent.
MOST_MESSAGE_CHARS = 2000
_GIVEN_UP = {
    "cancelled": ("batch_cancelled", "The batch was cancelled before this request was run."),
    "expired": ("batch_expired", "This request was not run before the batch expired."),
}


def completed_line(custom_id: str, request_id: str, body: bytes) -> str:
    """`body` is the reply's JSON."""
    return _line(custom_id, request_id, {"status_code": 200, "body": orjson.Fragment(body)})


def failed_line(
    custom_id: str, request_id: str, problem: Problem, charged: Mapping[str, Any] | None = None
) -> str:
    """Of a request that was refused, or failed; `charged`: what it cost nevertheless."""
    told = openai_problem(problem)
    if len(told.message) > MOST_MESSAGE_CHARS:
        told = replace(told, detail=told.message[:MOST_MESSAGE_CHARS] + "…")
    return _line(
        custom_id, request_id, {"status_code": told.status, "body": {**openai_body(told), **(charged or {})}}
    )


def given_up_line(batch_id: str, custom_id: str, number: int, state: str) -> str:
    """Of a request that was not run to its end."""
    code, message = _GIVEN_UP[state]
    return _dumped(
        {
            "id": f"{batch_id}_line_{number}",
            "custom_id": custom_id,
            "response": None,
            "error": {"code": code, "message": message},
        }
    )


def _line(custom_id: str, request_id: str, response: dict[str, Any]) -> str:
    return _dumped(
        {
            "id": request_id,
            "custom_id": custom_id,
            "response": {"request_id": request_id, **response},
            "error": None,
        }
    )


def _dumped(fields: dict[str, Any]) -> str:
    return orjson.dumps(fields).decode()
