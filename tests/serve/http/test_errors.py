"""Each domain error has one status, type and code (contract, section 7), and its body says what was wrong."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

import billing.errors
import models.errors
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
from billing.caller import LimitState
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
from models.engine import EngineFault
from models.errors import (
    EngineFailed,
    EngineRejected,
    EngineUnavailable,
    InvalidField,
    UnknownModel,
    UnsupportedOption,
)
from serve.chat.reply import event
from serve.http.auth import MissingKey, TooManyWrongKeys
from serve.http.errors import (
    RETRY_AFTER_S,
    STATUSES,
    Problem,
    WrongAdminKey,
    http_problem,
    problem_of,
    unexpected_problem,
)
from serve.http.request_body import InvalidBody, Issue

NO_STATE = LimitState(requests=None, tokens=None)
ISSUES = (
    Issue(type="missing", loc=("body", "messages"), msg="Field required"),
    Issue(type="less_than_equal", loc=("body", "messages", 0, "x"), msg="Too large", ctx={"le": 2}),
)

# One of each error, its status, type, code, and the headers that it must have.
ROWS: list[tuple[Exception, int, str, str, dict[str, str]]] = [
    (MissingKey("no key"), 401, "authentication_error", "missing_api_key", {"WWW-Authenticate": "Bearer"}),
    (InvalidKey("revoked"), 403, "permission_error", "invalid_api_key", {}),
    (WrongAdminKey(), 401, "authentication_error", "invalid_admin_key", {"WWW-Authenticate": "Bearer"}),
    (ModelNotAllowed("alpha"), 403, "permission_error", "model_not_allowed", {}),
    (RouteNotAllowed("chat"), 403, "permission_error", "route_not_allowed", {}),
    (
        QuotaExceeded(span="total", limit_nano_usd=2, committed_nano_usd=1, wanted_nano_usd=2),
        402,
        "insufficient_quota",
        "quota_exceeded",
        {},
    ),
    (BillingDisabled(), 402, "insufficient_quota", "billing_disabled", {}),
    (
        RateLimited(which="requests", limit=3, retry_after_s=41, state=NO_STATE),
        429,
        "rate_limit_error",
        "rate_limit_exceeded",
        {"Retry-After": "41"},
    ),
    (TooManyWrongKeys(2), 429, "rate_limit_error", "too_many_wrong_keys", {"Retry-After": "2"}),
    (PersonRequired(), 400, "invalid_request_error", "person_required", {}),
    (InvalidLabel("user", "must be a string"), 400, "invalid_request_error", "invalid_label", {}),
    (TagNotAllowed("metadata.tags", "not x"), 400, "invalid_request_error", "tag_not_allowed", {}),
    (UnsupportedOption("store", "not here"), 400, "invalid_request_error", "unsupported_option", {}),
    (UnknownOriginal(), 404, "invalid_request_error", "original_not_found", {}),
    (InvalidBody(ISSUES), 422, "invalid_request_error", "invalid_body", {}),
    (InvalidField(("n",), "too many"), 422, "invalid_request_error", "invalid_field", {}),
    (UnknownModel("omega", ("alpha",)), 422, "invalid_request_error", "model_not_found", {}),
    (EngineRejected("no", param=None), 422, "invalid_request_error", "rejected_by_engine", {}),
    (
        EngineUnavailable("full", retry_after_s=9),
        503,
        "server_error",
        "engine_unavailable",
        {"Retry-After": "9"},
    ),
    (EngineFailed("died"), 502, "server_error", "engine_failed", {}),
    (CompressionError("input", "too long"), 422, "invalid_request_error", "invalid_field", {}),
    (UnknownCompressionModel("omega", ("alpha",)), 422, "invalid_request_error", "model_not_found", {}),
    (CompressorOverloaded("full"), 503, "server_error", "compressor_overloaded", {"Retry-After": "5"}),
    (CompressorUnavailable("away"), 503, "server_error", "compressor_unavailable", {"Retry-After": "5"}),
    (CompressionTimedOut("late"), 503, "server_error", "compression_timed_out", {"Retry-After": "5"}),
    (CompressorFailed("died"), 502, "server_error", "compressor_failed", {}),
    (LedgerUnavailable("away"), 503, "server_error", "ledger_unavailable", {"Retry-After": "5"}),
    (UsageNotRecorded("e1", "full"), 503, "server_error", "usage_not_recorded", {"Retry-After": "5"}),
    (ClockBehind("e1"), 503, "server_error", "clock_behind", {"Retry-After": "5"}),
    (SpoolFull(9), 503, "server_error", "spool_full", {"Retry-After": "5"}),
    (LimitsUnavailable("away"), 503, "server_error", "limits_unavailable", {"Retry-After": "5"}),
    (PricesUnavailable("none"), 503, "server_error", "catalog_unavailable", {"Retry-After": "5"}),
    (UnknownFile("file-1"), 404, "invalid_request_error", "file_not_found", {}),
    (UnknownBatch("batch_1"), 404, "invalid_request_error", "batch_not_found", {}),
    (NoProof("archived"), 409, "invalid_request_error", "proof_unavailable", {}),
    (FileInUse("file-1", "batch_1"), 409, "invalid_request_error", "file_in_use", {}),
    (BatchEnded("batch_1", "completed"), 409, "invalid_request_error", "batch_ended", {}),
    (FilesFull(most_files=1, most_bytes=2), 413, "invalid_request_error", "files_full", {}),
    (ResultsFull(9), 413, "invalid_request_error", "files_full", {}),
    (TooManyBatches(9), 429, "rate_limit_error", "too_many_batches", {"Retry-After": "5"}),
    (StorageFull("no space"), 507, "server_error", "storage_full", {}),
    (StorageUnavailable("read-only"), 503, "server_error", "storage_unavailable", {"Retry-After": "5"}),
    (StoredElsewhere("f", "a", "b"), 503, "server_error", "stored_elsewhere", {"Retry-After": "5"}),
]


def test_every_row_of_the_table_is_tested_here() -> None:
    assert {type(error) for error, *_ in ROWS} == set(STATUSES)


@pytest.mark.parametrize(
    ("error", "status", "kind", "code", "headers"), ROWS, ids=[type(error).__name__ for error, *_ in ROWS]
)
def test_an_error_is_its_row(
    error: Exception, status: int, kind: str, code: str, headers: dict[str, str]
) -> None:
    response = problem_of(error).response()
    assert response.status_code == status
    body = orjson.loads(response.body)
    assert set(body) == {"detail", "error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert (body["error"]["type"], body["error"]["code"]) == (kind, code)
    assert body["error"]["message"]
    if isinstance(body["detail"], str):
        assert body["error"]["message"] == body["detail"] == str(error)
    assert response.headers["content-type"] == "application/json"
    extra = {
        name: response.headers[name]
        for name in ("WWW-Authenticate", "Retry-After")
        if name in response.headers
    }
    assert extra == headers


@pytest.mark.parametrize("row", ROWS, ids=[type(error).__name__ for error, *_ in ROWS])
def test_a_subclass_has_its_bases_row(row: tuple[Exception, int, str, str, dict[str, str]]) -> None:
    error, status, kind, code, headers = row
    grown = type("Grown", (type(error),), {})
    child = grown.__new__(grown, *error.args)
    child.__dict__.update(error.__dict__)
    problem = problem_of(child)
    assert (problem.status, problem.type, problem.code, dict(problem.headers)) == (
        status,
        kind,
        code,
        headers,
    )


def test_an_error_without_a_row_is_nobodys_guess() -> None:
    for error in (
        ValueError("x"),
        KeyError("x"),
        models.errors.EngineError("x"),
        billing.errors.BillingError("x"),
    ):
        with pytest.raises(KeyError):
            problem_of(error)


def test_every_error_that_an_engine_can_report_has_a_row() -> None:
    for kind in ("rejected", "unavailable", "timed_out", "failed"):
        assert problem_of(EngineFault(kind, "why").error()).status in (422, 502, 503)
    assert set(models.errors.EngineError.__subclasses__()) <= set(STATUSES)


@pytest.mark.parametrize(("wanted_s", "told"), [(0, "1"), (0.2, "1"), (1, "1"), (59.6, "60")])
def test_the_wait_is_told_in_whole_seconds_and_never_none(wanted_s: Any, told: str) -> None:
    assert problem_of(EngineUnavailable("full", retry_after_s=wanted_s)).headers["Retry-After"] == told


def test_without_a_wait_of_its_own_an_outage_has_the_servers() -> None:
    assert problem_of(LedgerUnavailable("away")).headers["Retry-After"] == str(RETRY_AFTER_S)


def test_issues_are_listed_whole_and_told_in_one_line() -> None:
    problem = problem_of(InvalidBody(ISSUES))
    assert problem.detail == [
        {"type": "missing", "loc": ["body", "messages"], "msg": "Field required"},
        {
            "type": "less_than_equal",
            "loc": ["body", "messages", 0, "x"],
            "msg": "Too large",
            "ctx": {"le": 2},
        },
    ]
    assert problem.message == "body.messages: Field required; body.messages.0.x: Too large"
    assert problem.param == "messages"


@pytest.mark.parametrize(
    ("error", "loc", "param"),
    [
        (
            InvalidField(("messages", 0, "content"), "bad"),
            ["body", "messages", 0, "content"],
            "messages.0.content",
        ),
        (UnknownModel("omega", ("alpha",)), ["body", "model"], "model"),
        (EngineRejected("bad", param="temperature"), ["body", "temperature"], "temperature"),
        (EngineRejected("bad", param=None), ["body"], None),
        (InvalidBody((Issue(type="a", loc=("body", 12), msg="b"),)), ["body", 12], None),
        (
            InvalidBody((Issue(type="a", loc=("header", "content-type"), msg="b"),)),
            None,
            "header.content-type",
        ),
    ],
)
def test_the_field_at_fault_is_named(error: Exception, loc: list[Any] | None, param: str | None) -> None:
    problem = problem_of(error)
    assert isinstance(problem.detail, list)
    assert problem.param == param
    if loc is not None:
        assert problem.detail[0]["loc"] == loc


def test_an_unknown_model_is_told_what_there_is() -> None:
    problem = problem_of(UnknownModel("omega", ("alpha", "beta")))
    assert isinstance(problem.detail, list)
    assert problem.detail[0]["input"] == "omega"
    assert "alpha, beta" in problem.detail[0]["msg"]


def test_an_unsupported_option_is_a_sentence_that_names_it() -> None:
    problem = problem_of(UnsupportedOption("store", "not here"))
    assert (problem.detail, problem.param) == ("store: not here", "store")


def test_why_a_key_is_refused_is_the_operators_to_know() -> None:
    assert "unknown id" not in problem_of(InvalidKey("unknown id")).message


def test_an_unexpected_error_tells_nothing_of_its_cause() -> None:
    problem = unexpected_problem()
    assert (problem.status, problem.code) == (500, "internal_error")
    assert "request id" in problem.message


@pytest.mark.parametrize(("status", "code"), [(404, "not_found"), (405, "method_not_allowed"), (413, "http")])
def test_an_error_of_http_itself_has_the_same_shape(status: int, code: str) -> None:
    problem = http_problem(status, "Not Found: GET /x")
    assert (problem.status, problem.code, problem.detail) == (status, code, "Not Found: GET /x")


def test_an_event_is_the_same_body_on_one_line() -> None:
    problem = Problem(502, "server_error", "engine_failed", "line one\nline two")
    said = event(problem.body())
    assert said.startswith(b"data: {") and said.endswith(b"}\n\n") and said.count(b"\n") == 2
    assert orjson.loads(said.removeprefix(b"data: ")) == problem.body()
