"""`benchmarks.soak` on a fake server, and that growth is told from noise."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from benchmarks.load.exchange import Failed
from benchmarks.load.loop import Target
from benchmarks.load.processes import Held, tree
from benchmarks.soak import LEAST_LOOKS, Look, Probe, Soak, arguments, complaints, growths, report, soaked
from tests.benchmarks.load.fake_server import FakeServer

SHORT = ["--requests", "60", "--rate", "40", "--warm-up", "0.1"]


@pytest.fixture
def small() -> Iterator[int]:
    """A process whose memory is read in a moment: that of all these tests takes a while to add up."""
    waiting = [sys.executable, "-S", "-c", "input()"]
    with subprocess.Popen(waiting, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        yield process.pid
        process.kill()


async def test_a_soak_reports_memory_files_and_lag_of_every_process(tmp_path: Path, small: int) -> None:
    done: list[object] = []
    async with FakeServer().listening() as server:
        options = arguments([*SHORT, "--url", server.url])
        soak = await soaked(options, Target(server.url), partial(tree, small), done.append)
    assert 50 <= len(done) <= 80
    assert {bool(request.get("stream")) for request in server.requests} == {True, False}
    assert soak.looks
    assert soak.probes
    soak.looks *= LEAST_LOOKS  # how many fit into so short a run is up to the machine
    made = report(options, {}, soak)
    as_json, as_text, picture = made.write(tmp_path)
    assert len(json.loads(as_json.read_text())["looks"][0]["processes"]) >= 1
    assert "open files" in as_text.read_text()
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert {"memory", "event loop", "latency", "TTFT"} <= {
        panel.title for panel in made.pictures["soak"].panels
    }


async def test_a_request_that_fails_ends_the_soak_without_figures(small: int) -> None:
    async with FakeServer(fails_from=20).listening() as server:
        options = arguments([*SHORT, "--url", server.url])
        with pytest.raises(Failed, match="503"):
            await soaked(options, Target(server.url), partial(tree, small), lambda sample: None)


def grown(memory_mib: list[float], files: list[int], lag_ms: float = 1.0) -> Soak:
    looks = [
        Look(float(at), (Held(7, "ingress replica", size, number),))
        for at, (size, number) in enumerate(zip(memory_mib, files, strict=True))
    ]
    return Soak(looks, [Probe(0.0, lag_ms, 0.0)])


def test_what_fills_in_the_first_quarter_is_no_growth() -> None:
    assert complaints(grown([100, 200, *[300] * 10], [10, 90, *[100] * 10]), 1000) == []


def test_memory_that_keeps_growing_is_a_failure() -> None:
    steady, leaking = [100.0] * 12, [100 + 3.0 * step for step in range(12)]
    assert complaints(grown(leaking, [10] * 12), 1000) == [
        "ingress replica: memory, MiB grew from 112.0 to 130.0, more than 8.0"
    ]
    assert complaints(grown(steady, list(range(12))), 1000) == [
        "ingress replica: open files grew from 4.0 to 10.0, more than 4.0"
    ]


def test_a_loop_that_was_held_up_is_a_failure() -> None:
    assert complaints(grown([1.0] * 8, [1] * 8, lag_ms=1500), 1000) == [
        "/health took 1500 ms at 0 s, more than 1000"
    ]


def test_a_run_too_short_to_tell_is_no_figure() -> None:
    with pytest.raises(Failed, match="2 looks"):
        growths(grown([1.0, 1.0], [1, 1]))
