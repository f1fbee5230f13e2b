"""The documentation of the admin API's answers, and its errors in the contract's shape."""

from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from billing.adjustments.adjustment import (
    AdjustmentKeyReused,
    AdjustmentRefused,
    AmbiguousRequest,
    InvalidAdjustment,
    UnknownRequest,
)
from billing.adjustments.adjustment import UnknownEvent as UnknownUsageEvent
from billing.errors import (
    AccountExists,
    AccountRevoked,
    BillingError,
    IllegalMove,
    InvalidAccount,
    InvalidCollection,
    InvalidKey,
    UnknownAccount,
    UnknownCollection,
    UnknownSpooledEvent,
)
from billing.webhooks.endpoint import InvalidEndpoint, TooManyEndpoints, UnknownEndpoint
from billing.webhooks.endpoint import UnknownEvent as UnknownWebhookEvent
from serve.http.errors import STATUSES, Problem, http_headers, http_problem, problem_of, unexpected_problem
from serve.http.openapi import REQUEST_ID_HEADER, ErrorBody
from serve.operator.adapters import NotInForce, OfTheConfiguration, UnknownAdapter
from serve.operator.view import View
from serve.ops.idempotency import AnswerNotKept, IdempotencyKeyReused
from serve.ops.reconciling import AnotherRuns, UnknownJob
from serve.prompt_compression.options import BadDefault


def answers(model: type[View], *errors: int, status: int = 200, **more: Any) -> dict[str, Any]:
    """The options of a route that answers with this shape; `more` is of the answer's documentation.

    The shape is documented, and not imposed: who changed money gets the answer, whatever its form.
    """
    said = {"model": model, "description": "Done.", "headers": REQUEST_ID_HEADER, **more}
    responses = {status: said, **error_responses(*errors)}
    return {"status_code": status, "response_model": None, "responses": responses}


def text_of(*media_types: str) -> dict[str, Any]:
    """The documentation of answers that are not JSON."""
    return {"content": {one: {"schema": {"type": "string"}} for one in media_types}}


def headers(said: Mapping[str, str]) -> dict[str, Any]:
    """The documentation of an answer's own headers."""
    own = {name: {"description": words, "schema": {"type": "string"}} for name, words in said.items()}
    return {"headers": {**REQUEST_ID_HEADER, **own}}


def files(media_types: Iterable[str], *errors: int, **said: str) -> dict[str, Any]:
    """The options of a route that answers with a file, and with these headers."""
    ok = {"description": "Done.", **text_of(*media_types), **headers(said)}
    return {
        "response_class": Response,
        "response_model": None,
        "responses": {200: ok, **error_responses(*errors)},
    }


MAX_ISSUES = 20
# Status and code; the type is that of a request that cannot be done as it was asked.
OPERATORS: Mapping[type[Exception], tuple[int, str]] = {
    UnknownAccount: (404, "account_not_found"),
    UnknownCollection: (404, "collection_not_found"),
    UnknownSpooledEvent: (404, "event_not_found"),
    UnknownUsageEvent: (404, "event_not_found"),
    UnknownRequest: (404, "event_not_found"),
    UnknownEndpoint: (404, "webhook_not_found"),
    UnknownWebhookEvent: (404, "event_not_found"),
    UnknownJob: (404, "reconciliation_not_found"),
    # Of a key named in a path.
    InvalidKey: (404, "account_not_found"),
    AccountExists: (409, "account_exists"),
    AccountRevoked: (409, "account_revoked"),
    IllegalMove: (409, "illegal_move"),
    IdempotencyKeyReused: (409, "idempotency_key_reused"),
    AnswerNotKept: (409, "answer_not_kept"),
    AdjustmentKeyReused: (409, "idempotency_key_reused"),
    AdjustmentRefused: (409, "adjustment_refused"),
    AmbiguousRequest: (409, "ambiguous_request"),
    TooManyEndpoints: (409, "too_many_webhooks"),
    AnotherRuns: (409, "reconciliation_running"),
    InvalidAccount: (422, "invalid_field"),
    InvalidCollection: (422, "invalid_field"),
    InvalidAdjustment: (422, "invalid_field"),
    InvalidEndpoint: (422, "invalid_field"),
    BadDefault: (422, "invalid_field"),
    UnknownAdapter: (404, "adapter_not_found"),
    OfTheConfiguration: (409, "adapter_of_configuration"),
    NotInForce: (409, "not_in_force"),
    ValueError: (422, "invalid_field"),
}

_RETRY_AFTER = {
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}}
}
_CHALLENGE = {"WWW-Authenticate": {"description": "`Bearer`.", "schema": {"type": "string"}}}
# What a status means here, and the headers that it has besides `X-Request-ID`.
_WHEN: Mapping[int, tuple[str, dict[str, Any]]] = {
    401: ("The admin key is missing or wrong.", _CHALLENGE),
    404: ("Nothing has this id or name.", {}),
    409: (
        "It exists, was revoked, cannot become that, is one too many or not the only one, or the Idempotency-Key was "
        "another request's.",
        {},
    ),
    422: ("Malformed JSON, or a field that cannot be so.", {}),
    429: ("Too many wrong admin keys from this address.", _RETRY_AFTER),
    500: ("Unexpected server error.", {}),
    503: ("The ledger is away.", _RETRY_AFTER),
}


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The documentation of a route's errors."""
    return {
        status: {"model": ErrorBody, "description": words, "headers": {**REQUEST_ID_HEADER, **headers}}
        for status in statuses
        for words, headers in [_WHEN[status]]
    }


def answer_errors(api: FastAPI) -> None:
    for kind in (*STATUSES, *OPERATORS, BillingError):
        api.add_exception_handler(kind, _answer)
    api.add_exception_handler(RequestValidationError, _answer_invalid)
    api.add_exception_handler(HTTPException, _answer_http)
    api.add_exception_handler(Exception, _answer_unexpected)


def problem(error: Exception) -> Problem:
    """An operator's error by the table above, any other as requests have it."""
    for kind in type(error).__mro__:
        if kind in OPERATORS:
            status, code = OPERATORS[kind]
            return Problem(status, "invalid_request_error", code, str(error))
        if kind in STATUSES:
            return problem_of(error)
    return unexpected_problem()


async def _answer(request: Request, error: Exception) -> Response:
    return problem(error).response()


async def _answer_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    issues: list[dict[str, Any]] = [
        {"type": one["type"], "loc": list(one["loc"]), "msg": one["msg"]}
        for one in error.errors()[:MAX_ISSUES]
    ]
    loc = [str(part) for part in issues[0]["loc"][1:]]
    return Problem(422, "invalid_request_error", "invalid_body", issues, ".".join(loc) or None).response()


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 400:
        # The framework's own, of what it cannot read: bytes that are no text, or JSON that is too deep.
        issue = {"type": "json_invalid", "loc": ["body"], "msg": "Not JSON in UTF-8, or nested too deep"}
        return Problem(422, "invalid_request_error", "invalid_body", [issue]).response()
    answer = http_problem(
        error.status_code, f"{error.detail}: {request.method} {request.url.path}"
    ).response()
    answer.headers.update(http_headers(request, error))
    return answer


async def _answer_unexpected(request: Request, error: Exception) -> Response:
    return unexpected_problem().response()
