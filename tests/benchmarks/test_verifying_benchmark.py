"""`benchmarks.verifying`: what a half sends, and what the report says of made-up rounds."""

from __future__ import annotations

import json
from pathlib import Path

import orjson
import pytest

from benchmarks.load.exchange import Failed
from benchmarks.verifying import Round, arguments, long_chat, report


def test_a_chat_to_compress_differs_from_number_to_number_and_in_nothing_else_than_verify() -> None:
    options = arguments(["--context", "500"])
    on, off, other = (
        orjson.loads(long_chat(options, number, verify=verify).bodies[0])
        for number, verify in ((1, 1), (1, 0), (2, 1))
    )
    assert on["messages"] == off["messages"] != other["messages"]
    assert (on["compression"]["verify"], off["compression"]["verify"]) == (1, 0)
    assert len(on["messages"][0]["content"][0]["text"]) == 500


def test_the_report_has_both_sides_and_how_many_were_checked(tmp_path: Path) -> None:
    rounds = [Round([10.0, 20.0], [10.0, 30.0], 3), Round([10.0, 20.0], [20.0, 20.0], 2)]
    as_json, as_text = report(arguments([]), {}, rounds).write(tmp_path)
    assert len(json.loads(as_json.read_text())["rounds"]) == 2
    text = as_text.read_text()
    assert "in which 5 chats were checked" in text and "| 1 | 4 |" in text


def test_without_a_check_nothing_was_measured() -> None:
    with pytest.raises(Failed, match="no chat was checked"):
        report(arguments([]), {}, [Round([1.0], [1.0], 0)])
