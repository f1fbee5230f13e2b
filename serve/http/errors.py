"""The one place that knows HTTP statuses: which domain error becomes which status, type, code and body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from billing.accounts.keys import ModelNotAllowed, RouteNotAllowed
from billing.batches.batch import (
    BatchEnded,
    FileInUse,
    FilesFull,
    ResultsFull,
    StorageFull,
    StorageUnavailable,
    StoredElsewhere,
    TooManyBatches,
    UnknownBatch,
    UnknownFile,
)
from billing.errors import (
    BillingDisabled,
    ClockBehind,
    InvalidKey,
    LedgerUnavailable,
    LimitsUnavailable,
    NoProof,
    PricesUnavailable,
    QuotaExceeded,
    RateLimited,
    SpoolFull,
    UnknownOriginal,
    UsageNotRecorded,
)
from billing.labels import InvalidLabel, PersonRequired, TagNotAllowed
from compression.pipeline.errors import (
    CompressionError,
    CompressionTimedOut,
    CompressorFailed,
    CompressorOverloaded,
    CompressorUnavailable,
    UnknownCompressionModel,
)
from models.errors import (
    EngineFailed,
    EngineRejected,
    EngineUnavailable,
    InvalidField,
    UnknownModel,
    UnsupportedOption,
)
from serve.http.auth import MissingKey, TooManyWrongKeys
from serve.http.request_body import InvalidBody

RETRY_AFTER_S = 5


class WrongAdminKey(Exception):
    """The admin key is none of those in the operator's file."""

    def __init__(self) -> None:
        super().__init__("the admin key is wrong")


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as HTTP tells it. `detail` is the contract's string or list of validation issues."""

    status: int
    type: str
    code: str
    detail: str | list[dict[str, Any]]
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    # Prompt and reply do not fit the model's context.
    is_too_long: bool = False

    @property
    def message(self) -> str:
        """The detail in one line, for SDKs that print `error.message`."""
        if isinstance(self.detail, str):
            return self.detail
        return "; ".join(f"{_path(issue['loc'])}: {issue['msg']}" for issue in self.detail)

    def body(self) -> dict[str, Any]:
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"detail": self.detail, "error": error}

    def response(self) -> Response:
        return Response(
            orjson.dumps(self.body()),
            status_code=self.status,
            headers=dict(self.headers),
            media_type="application/json",
        )

    def within(self, *steps: str | int) -> Problem:
        """The same problem in a part of the body, `steps` below the body's root."""
        if isinstance(self.detail, str):
            return self
        detail = [{**issue, "loc": [issue["loc"][0], *steps, *issue["loc"][1:]]} for issue in self.detail]
        return replace(self, detail=detail, param=_param(detail[0]["loc"]))


@dataclass(frozen=True, slots=True)
class _Row:
    status: int
    type: str
    code: str


# One row an error; a subclass is found through its base.
STATUSES: Mapping[type[Exception], _Row] = {
    MissingKey: _Row(401, "authentication_error", "missing_api_key"),
    WrongAdminKey: _Row(401, "authentication_error", "invalid_admin_key"),
    InvalidKey: _Row(403, "permission_error", "invalid_api_key"),
    ModelNotAllowed: _Row(403, "permission_error", "model_not_allowed"),
    RouteNotAllowed: _Row(403, "permission_error", "route_not_allowed"),
    QuotaExceeded: _Row(402, "insufficient_quota", "quota_exceeded"),
    BillingDisabled: _Row(402, "insufficient_quota", "billing_disabled"),
    TooManyWrongKeys: _Row(429, "rate_limit_error", "too_many_wrong_keys"),
    RateLimited: _Row(429, "rate_limit_error", "rate_limit_exceeded"),
    UnknownOriginal: _Row(404, "invalid_request_error", "original_not_found"),
    UnknownFile: _Row(404, "invalid_request_error", "file_not_found"),
    UnknownBatch: _Row(404, "invalid_request_error", "batch_not_found"),
    NoProof: _Row(409, "invalid_request_error", "proof_unavailable"),
    FileInUse: _Row(409, "invalid_request_error", "file_in_use"),
    TooManyBatches: _Row(429, "rate_limit_error", "too_many_batches"),
    BatchEnded: _Row(409, "invalid_request_error", "batch_ended"),
    FilesFull: _Row(413, "invalid_request_error", "files_full"),
    ResultsFull: _Row(413, "invalid_request_error", "files_full"),
    StorageFull: _Row(507, "server_error", "storage_full"),
    StorageUnavailable: _Row(503, "server_error", "storage_unavailable"),
    StoredElsewhere: _Row(503, "server_error", "stored_elsewhere"),
    PersonRequired: _Row(400, "invalid_request_error", "person_required"),
    InvalidLabel: _Row(400, "invalid_request_error", "invalid_label"),
    TagNotAllowed: _Row(400, "invalid_request_error", "tag_not_allowed"),
    UnsupportedOption: _Row(400, "invalid_request_error", "unsupported_option"),
    InvalidBody: _Row(422, "invalid_request_error", "invalid_body"),
    InvalidField: _Row(422, "invalid_request_error", "invalid_field"),
    UnknownModel: _Row(422, "invalid_request_error", "model_not_found"),
    EngineRejected: _Row(422, "invalid_request_error", "rejected_by_engine"),
    EngineUnavailable: _Row(503, "server_error", "engine_unavailable"),
    EngineFailed: _Row(502, "server_error", "engine_failed"),
    CompressionError: _Row(422, "invalid_request_error", "invalid_field"),
    UnknownCompressionModel: _Row(422, "invalid_request_error", "model_not_found"),
    CompressorOverloaded: _Row(503, "server_error", "compressor_overloaded"),
    CompressorUnavailable: _Row(503, "server_error", "compressor_unavailable"),
    CompressionTimedOut: _Row(503, "server_error", "compression_timed_out"),
    CompressorFailed: _Row(502, "server_error", "compressor_failed"),
    LedgerUnavailable: _Row(503, "server_error", "ledger_unavailable"),
    UsageNotRecorded: _Row(503, "server_error", "usage_not_recorded"),
    SpoolFull: _Row(503, "server_error", "spool_full"),
    ClockBehind: _Row(503, "server_error", "clock_behind"),
    LimitsUnavailable: _Row(503, "server_error", "limits_unavailable"),
    PricesUnavailable: _Row(503, "server_error", "catalog_unavailable"),
}


def problem_of(error: Exception) -> Problem:
    """The problem that a domain error becomes. Raises `KeyError` for an error without a row."""
    kind = next((kind for kind in type(error).__mro__ if kind in STATUSES), type(error))
    row = STATUSES[kind]
    issues, param = _issues(error)
    return Problem(
        status=row.status,
        type=row.type,
        code=row.code,
        detail=issues if issues is not None else str(error),
        param=param,
        is_too_long=isinstance(error, EngineRejected) and error.is_too_long,
        headers=_headers(row.status, error),
    )


def unexpected_problem() -> Problem:
    """For an unexpected exception: nothing about the cause leaves the server."""
    return Problem(
        500, "server_error", "internal_error", "unexpected server error; the request id finds it in the log"
    )


def http_problem(status: int, detail: str) -> Problem:
    """A problem of HTTP itself, such as an unknown path or method."""
    return Problem(
        status,
        "invalid_request_error",
        {404: "not_found", 405: "method_not_allowed"}.get(status, "http"),
        detail,
    )


def http_headers(request: Request, error: HTTPException) -> dict[str, str]:
    """The headers of HTTP's own error. `Allow` has the methods of all routes of the path: the framework names those of
    the first one."""
    headers = dict(error.headers or {})
    if "Allow" in headers:
        of_path = (
            one
            for one in request.app.routes
            if isinstance(one, Route) and one.matches(request.scope)[0] != Match.NONE
        )
        headers["Allow"] = ", ".join(sorted({method for one in of_path for method in one.methods or ()}))
    return headers


def _issues(error: Exception) -> tuple[list[dict[str, Any]] | None, str | None]:
    if isinstance(error, InvalidBody):
        issues = [issue.as_dict() for issue in error.issues]
        return issues, _param(issues[0]["loc"])
    if isinstance(error, InvalidField):
        return [_issue(error.kind, ("body", *error.loc), error.message)], _param(("body", *error.loc))
    if isinstance(error, CompressionError):
        path = ("body", *error.field.split("."))
        return [_issue("compression_refused", path, error.message)], _param(path)
    if isinstance(error, (UnknownModel, UnknownCompressionModel)):
        return [_issue("unsupported_model", ("body", "model"), str(error), error.model_id)], "model"
    if isinstance(error, EngineRejected):
        loc = _engine_loc(error.param)
        return [_issue("engine_rejected", loc, error.message)], _param(loc)
    if isinstance(error, UnsupportedOption):
        return None, error.option
    if isinstance(error, ModelNotAllowed):
        return None, "model"
    if isinstance(error, InvalidLabel):
        return None, error.field
    return None, None


def _engine_loc(param: str | None) -> tuple[str, ...]:
    return ("body",) if param is None else ("body", param)


def _issue(kind: str, loc: Sequence[str | int], message: str, given: Any = None) -> dict[str, Any]:
    issue: dict[str, Any] = {"type": kind, "loc": list(loc), "msg": message}
    if given is not None:
        issue["input"] = given
    return issue


def _headers(status: int, error: Exception) -> dict[str, str]:
    if status == 401:
        return {"WWW-Authenticate": "Bearer"}
    if status in (429, 503):
        return {"Retry-After": str(max(1, round(getattr(error, "retry_after_s", RETRY_AFTER_S))))}
    return {}


def _path(loc: Sequence[str | int]) -> str:
    return ".".join(str(part) for part in loc)


def _param(loc: Sequence[str | int]) -> str | None:
    if len(loc) == 2 and isinstance(loc[1], int):
        # Malformed JSON: the place is an offset, and no field is known.
        return None
    return _path(loc[1:]) or None if loc and loc[0] == "body" else _path(loc)
