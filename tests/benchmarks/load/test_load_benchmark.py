"""`benchmarks.load` end to end against a fake server."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from benchmarks.load.__main__ import arguments, measured, report
from benchmarks.load.exchange import Failed
from benchmarks.load.machine import facts
from benchmarks.load.report import no_report_on_failure
from tests.benchmarks.load.fake_server import FakeServer

SHORT = ["--warm-up", "0.05", "--seconds", "0.8", "--rounds", "2", "--tokens", "4", "--key", "k"]


async def test_a_report_has_every_sample_cpu_by_process_facts_and_a_plot(tmp_path: Path) -> None:
    words = [*SHORT, "--stream", "--clients", "1,3", "--pid", str(os.getpid())]
    async with FakeServer(token_s=0.002).listening() as server:
        options = arguments([*words, "--url", server.url])
        runs = await measured(options)
    made = report(options, facts("benchmarks.load"), runs)
    as_json, as_text, picture = made.write(tmp_path)
    body = json.loads(as_json.read_text())
    assert list(body["runs"]) == ["1 client", "3 clients"]
    for samples in body["runs"].values():
        assert len(samples) == 2
        assert all(len(sample["arrivals_ms"]) == 4 for run in samples for sample in run["samples"])
    for fact in ("command", "commit", "machine", "versions"):
        assert body["facts"][fact]
    assert "| 1 client | " in as_text.read_text()
    assert "| load generator | " in as_text.read_text()
    assert picture.read_bytes().startswith(b"\x89PNG")
    throughput, *times = made.pictures["load"].panels
    assert [clients for clients, _ in throughput.lines["4 tokens, SSE"]] == [1, 3]
    in_all = {name: sum(len(run["samples"]) for run in some) * 4 / sum(run["seconds"] for run in some)
              for name, some in body["runs"].items()}  # fmt: skip
    assert [rate for _, rate in throughput.lines["4 tokens, SSE"]] == pytest.approx(list(in_all.values()))
    assert f"| {in_all['1 client']:,.0f} |" in as_text.read_text()
    assert f" {max(in_all.values()):,.0f} tokens/s on the mean at " in made.pictures["load"].title
    assert [panel.title for panel in times] == ["latency", "TTFT", "between events"]
    assert all(set(panel.lines) == {"1 client", "3 clients"} for panel in times)


async def test_an_open_loop_takes_the_place_of_the_clients(tmp_path: Path) -> None:
    async with FakeServer().listening() as server:
        runs = await measured(arguments([*SHORT, "--rate", "50", "--url", server.url]))
    assert [str(pattern) for pattern in runs] == ["50 requests/s"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--clients", "1,none"], "'none' is not a number from 1"),
        (["--rate", "0"], "'0' is not a number above 0"),
        (["--seconds", "nan"], "'nan' is not a number above 0"),
    ],
)
def test_a_wrong_argument_is_named(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        arguments(words)
    assert complaint in capsys.readouterr().err


def test_a_failure_ends_the_program_without_a_report() -> None:
    with pytest.raises(SystemExit, match="nothing to report: POST /v1/compress: 503"), no_report_on_failure():
        raise Failed("POST /v1/compress: 503")
