"""What a process writes once its log has begun, whatever its libraries do to Python's root logger."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from serve.logs.outlet import ACCESS, OURS, START, LogPlan, begin_logs, outlet_of_process, take_others

NAMES = [None, *OURS, ACCESS, START, "vllm", "httpx"]


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in NAMES]
    before = [(one, list(one.handlers), one.level, one.propagate) for one in loggers]
    yield
    logging.captureWarnings(False)
    for one, handlers, level, propagate in before:
        one.handlers[:] = handlers
        one.propagate = propagate
        one.setLevel(level)


def test_a_library_that_takes_the_root_logger_does_not_take_our_lines(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    outlet = begin_logs(LogPlan("json", "info", tmp_path / "nobody listens"))
    assert outlet_of_process() is outlet
    # As ray.llm does when it is imported.
    logging.getLogger().handlers = [logging.NullHandler()]
    logging.getLogger().setLevel(logging.INFO)
    logging.getLogger("billing.ledger.spool").info("ours")
    logging.getLogger("httpx").warning("lost")
    take_others(outlet)
    logging.getLogger("httpx").warning("a warning of another")
    logging.getLogger("httpx").info("its narration, with the address of a request")
    logging.getLogger("vllm.engine").error("of an engine")
    logging.getLogger("pith.http").debug("too fine")
    outlet.drain(10)
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [line["message"] for line in lines] == ["ours", "a warning of another", "of an engine"]


def test_requests_and_the_start_are_written_whatever_the_level(capfd: pytest.CaptureFixture[str]) -> None:
    outlet = begin_logs(LogPlan("text", "error"))
    for name in (ACCESS, START, "pith.chat"):
        logging.getLogger(name).info("said")
    outlet.drain(10)
    said = capfd.readouterr().err.splitlines()
    assert [line.split()[1:] for line in said] == [["INFO", f"{name}:", "said"] for name in (ACCESS, START)]
