"""`benchmarks.neighbours` end to end on a fake server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.load.exchange import Failed
from benchmarks.neighbours import arguments, measured, report
from tests.benchmarks.load.fake_server import FakeServer

SHORT = ["--small-tokens", "50", "--requests", "8", "--large-bytes", "20000", "--rounds", "2", "--key", "k"]


async def test_each_round_has_the_burst_alone_and_beside_the_large_one(tmp_path: Path) -> None:
    async with FakeServer(compress_char_s=0.00002).listening() as server:
        options = arguments([*SHORT, "--head-start", "0.02", "--url", server.url])
        rounds = await measured(options)
    sizes = [len(request["input"]) for request in server.requests]
    assert sizes.count(20_000) == 2 and len(sizes) == 1 + 8 + 2 * (8 + 1 + 8)
    assert [(len(each.quiet_ms), len(each.beside_ms), each.overlapped) for each in rounds] == [
        (8, 8, True)
    ] * 2
    assert all(each.large_ms > 400 for each in rounds)
    as_json, as_text = report(options, {}, rounds).write(tmp_path)
    assert len(json.loads(as_json.read_text())["rounds"]) == 2
    assert "| beside a large one | 16 |" in as_text.read_text()


async def test_a_large_one_that_is_over_too_soon_measures_nothing() -> None:
    async with FakeServer(compress_s=0.001).listening() as server:
        options = arguments([*SHORT, "--head-start", "0.1", "--url", server.url])
        rounds = await measured(options)
    with pytest.raises(Failed, match="make it larger"):
        report(options, {}, rounds)
