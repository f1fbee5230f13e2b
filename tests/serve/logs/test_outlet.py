"""Whoever logs never waits for what reads the log; one record is one line, and a key is in none."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Iterator
from contextvars import copy_context
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from billing.accounts.keys import mint
from billing.webhooks.secret_box import mint as webhook_secret
from serve.logs import outlet as relays
from serve.logs.lines import (
    FIELDS,
    LONGEST_EXCEPTION,
    LONGEST_MESSAGE,
    JsonLines,
    LogFormat,
    formatter,
    name_lines,
)
from serve.logs.outlet import Outlet, relay, writer_to

DEADLINE_S = 60
PLAIN = logging.Formatter()


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    logger = logging.Logger("pith.test")
    yield logger


def test_a_reader_that_stalls_costs_lines_and_nobody_time(log: logging.Logger) -> None:
    goes_on, lost, written = threading.Event(), [], []

    def write(line: bytes) -> None:
        goes_on.wait(DEADLINE_S)
        written.append(line)

    outlet = Outlet(write, PLAIN, most_waiting=300, dropped=lost.append)
    log.addHandler(outlet)
    for number in range(1000):
        log.warning("line %d", number)
    # One batch may be on its way beside those that wait.
    assert 600 <= sum(lost) <= 700
    goes_on.set()
    outlet.drain(DEADLINE_S)
    said = b"".join(written).decode()
    assert len(re.findall(r"^line \d", said, re.MULTILINE)) == 1000 - sum(lost)
    assert sum(int(count) for count in re.findall(r"(\d+) lines of the log were dropped", said)) == sum(lost)


def test_a_reader_that_is_gone_is_counted(log: logging.Logger) -> None:
    lost: list[int] = []

    def write(line: bytes) -> None:
        raise BrokenPipeError

    outlet = Outlet(write, PLAIN, dropped=lost.append)
    log.addHandler(outlet)
    log.warning("unheard")
    outlet.drain(DEADLINE_S)
    assert lost == [1]


def test_what_cannot_be_formatted_ends_nothing(log: logging.Logger) -> None:
    class Broken(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            raise RuntimeError("broken")

    lost: list[int] = []
    outlet = Outlet(lambda line: None, Broken(), dropped=lost.append)
    log.addHandler(outlet)
    log.warning("said")
    assert lost == [1]


def test_a_write_that_fails_costs_the_relay_that_line_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where standard error is a file, and its disk is full for a while."""
    written: list[bytes] = []
    dropped: list[int] = []
    said = logging.Logger("pith.logs")
    said.addHandler(caplog.handler)
    path = tmp_path / "logs.sock"
    with open("/dev/full", "wb", buffering=0) as full:
        write = {b"lost\n": full.write}
        monkeypatch.setattr(relays, "logger", said)
        monkeypatch.setattr(relays, "write_to_stderr", lambda line: write.get(line, written.append)(line))
        with relay(path, dropped.append):
            for line in (b"one\n", b"lost\n", b"lost\n", b"two\n", b"three\n"):
                relays.writer_to(path)(line)
    assert written == [b"one\n", b"two\n", b"three\n"]
    assert caplog.messages == ["2 lines of the log could not be written"]
    assert dropped == [1, 1]


def test_lines_of_another_process_come_out_at_the_relay_and_a_fork_writes_its_own(
    log: logging.Logger, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "logs.sock"
    with relay(path):
        outlet = Outlet(writer_to(path), PLAIN)
        log.addHandler(outlet)
        log.warning("of the parent")
        outlet.drain(DEADLINE_S)
        child = os.fork()
        if not child:
            log.warning("of the child")
            outlet.drain(DEADLINE_S)
            os._exit(0)
        os.waitpid(child, 0)
        writer_to(path)(b"the last one\n")
    found = capfd.readouterr().err
    assert [found.count(line) for line in ("of the parent\n", "of the child\n", "the last one\n")] == [
        1,
        1,
        1,
    ]
    # Without a relay they are on the process's own standard error.
    log.warning("nobody listens")
    outlet.drain(DEADLINE_S)
    assert "nobody listens\n" in capfd.readouterr().err


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
        name_lines(f"id-{secret}", trace_id=secret)
        return formatter(log_format).format(record("said %s", secret, model=f"alpha {secret}", status=200))

    line = copy_context().run(written)
    assert line.count("(key)") == 4 and secret[12:28] not in line and "200" in line


def test_in_text_no_value_reads_as_other_fields() -> None:
    def written() -> str:
        name_lines('x status=200 key_id="key_other')
        return formatter("text").format(record("GET /v1/models 401", status=401, model="alpha", error=None))

    line = copy_context().run(written)
    assert line.endswith(r'request_id="x status=200 key_id=\"key_other" status=401 model=alpha')
    assert formatter("text").format(record("said", model="a\\", ended="")).endswith('model=a\\ ended=""')


def test_the_request_that_a_line_is_about_is_named() -> None:
    def written() -> str:
        name_lines("req_1", trace_id="4bf92f3577b34da6a3ce929d0e0e4736")
        return JsonLines().format(record("said"))

    found = json.loads(copy_context().run(written))
    assert (found["request_id"], found["trace_id"]) == ("req_1", "4bf92f3577b34da6a3ce929d0e0e4736")
    assert "request_id" not in JsonLines().format(record("said"))
