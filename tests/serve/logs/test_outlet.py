"""Whoever logs never waits for what reads the log."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from serve.logs import outlet as relays
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
