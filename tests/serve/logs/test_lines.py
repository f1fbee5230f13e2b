"""One record is one line, whatever is in it; a key or what a caller sent is in none."""

from __future__ import annotations

import json
import logging
from contextvars import copy_context

import pytest
from pydantic import BaseModel, ValidationError

from billing.accounts.keys import mint
from billing.webhooks.sender import mint as webhook_secret
from serve.logs.lines import (
    FIELDS,
    LONGEST_EXCEPTION,
    LONGEST_MESSAGE,
    JsonLines,
    LogFormat,
    RequestNotes,
    formatter,
    take_notes,
)

CANARY = "the patient's canary 4711"
NASTY = 'a\nb\r\n{"level":"critical"}\x1b[31m\u2028\x85\ud800 "q"'


def record(
    message: str, *arguments: object, error: BaseException | None = None, **fields: object
) -> logging.LogRecord:
    exc_info = (type(error), error, error.__traceback__) if error else None
    made = logging.LogRecord("pith.test", logging.WARNING, __file__, 1, message, arguments, exc_info)
    setattr(made, FIELDS, fields)
    return made


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_a_record_is_one_object_with_its_time_in_utc() -> None:
    made = record("model %s", "alpha", status=200)
    made.created = 1_795_000_000.25
    assert json.loads(JsonLines().format(made)) == {
        "time": "2026-11-18T11:06:40.250Z",
        "level": "warning",
        "logger": "pith.test",
        "message": "model alpha",
        "status": 200,
    }


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_message_and_no_field_can_make_a_second_line(log_format: LogFormat) -> None:
    line = formatter(log_format).format(record("said %s", NASTY, model=NASTY))
    assert line.isprintable() or log_format == "json"
    assert len(line.splitlines()) == 1 and "\x1b" not in line
    if log_format == "json":
        assert line.isascii()
        assert json.loads(line)["message"] == f"said {NASTY}"


def test_an_exception_is_a_field_and_in_text_its_lines_are_indented() -> None:
    error = raised(ValueError(f"no such thing: {NASTY}"))
    found = json.loads(JsonLines().format(record("failed", error=error)))["exception"]
    assert found.splitlines()[0].endswith("in raised") and "ValueError: no such thing" in found
    first, *rest = formatter("text").format(record("failed", error=error)).split("\n")
    assert first.endswith("pith.test: failed") and rest
    assert all(line.startswith("    ") and line.isprintable() for line in rest[:-1])


def test_lines_are_bounded() -> None:
    error = raised(RuntimeError("x" * 10**6))
    line = JsonLines().format(record("%s", "\U0001f600" * 10**6, error=error))
    assert len(line) < 13 * (LONGEST_MESSAGE + LONGEST_EXCEPTION)


def test_a_call_with_wrong_arguments_is_written_all_the_same() -> None:
    assert "cannot be written" in JsonLines().format(record("%d tokens", "many"))


class Strict(BaseModel):
    field: int


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_key_and_what_a_caller_sent_are_left_out(log_format: LogFormat) -> None:
    key = mint().token
    with pytest.raises(ValidationError) as caught:
        Strict.model_validate({"field": CANARY})
    outer = RuntimeError(f"authorization: Bearer {key[:30]}")
    outer.__cause__ = caught.value
    line = formatter(log_format).format(record("key %s", key, error=raised(outer)))
    assert CANARY not in line and key not in line and key[:30] not in line
    assert "ValidationError" in line and "(key)" in line


SECRETS = [mint().token, f"pith_admin_{'ab12' * 16}", webhook_secret()]


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize("secret", SECRETS, ids=["key", "admin key", "webhook"])
def test_no_secret_is_in_a_message_a_field_or_a_request_id(log_format: LogFormat, secret: str) -> None:
    def written() -> str:
        take_notes(RequestNotes(f"id-{secret}", trace_id=secret))
        return formatter(log_format).format(record("said %s", secret, model=f"alpha {secret}", status=200))

    line = copy_context().run(written)
    assert line.count("(key)") == 4 and secret[12:28] not in line and "200" in line


def test_in_text_no_value_reads_as_other_fields() -> None:
    def written() -> str:
        take_notes(RequestNotes('x status=200 key_id="key_other'))
        return formatter("text").format(record("GET /v1/models 401", status=401, model="alpha", error=None))

    line = copy_context().run(written)
    assert line.endswith(r'request_id="x status=200 key_id=\"key_other" status=401 model=alpha')
    assert formatter("text").format(record("said", model="a\\", ended="")).endswith('model=a\\ ended=""')


def test_the_request_that_a_line_is_about_is_named() -> None:
    def written() -> str:
        take_notes(RequestNotes("req_1", trace_id="4bf92f3577b34da6a3ce929d0e0e4736"))
        return JsonLines().format(record("said"))

    found = json.loads(copy_context().run(written))
    assert (found["request_id"], found["trace_id"]) == ("req_1", "4bf92f3577b34da6a3ce929d0e0e4736")
    assert "request_id" not in JsonLines().format(record("said"))
