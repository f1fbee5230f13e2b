"""`benchmarks.compress` end to end on a fake server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.compress import Scenario, arguments, call, measured, report, scenarios
from benchmarks.load.exchange import Failed
from benchmarks.load.text import made_up
from tests.benchmarks.load.fake_server import FakeServer

SHORT = [
    "--tokens",
    "50,200",
    "--ratios",
    "0.5,0.25",
    "--clients",
    "1,2",
    "--warm-up",
    "0.02",
    "--seconds",
    "0.3",
]


async def test_a_report_has_every_size_ratio_and_number_of_clients(tmp_path: Path) -> None:
    async with FakeServer(compress_s=0.002).listening() as server:
        options = arguments([*SHORT, "--rounds", "1", "--url", server.url, "--key", "k", "--models", "words"])
        runs = await measured(options)
    assert len(runs) == 8
    for scenario, [run] in runs.items():
        sizes = [sample.figures.tokens for sample in run.samples]
        assert sum(sizes) / len(sizes) == pytest.approx(scenario.tokens, rel=0.25)
        assert {sample.figures.ratio for sample in run.samples} == {scenario.ratio}
        assert all(sample.latency_ms > 2 for sample in run.samples)
    assert {request["model"] for request in server.requests} == {"words"}
    made = report(options, {}, runs)
    as_json, as_text, picture = made.write(tmp_path)
    assert len(json.loads(as_json.read_text())["runs"]) == 8
    assert "| words | " in as_text.read_text()
    assert picture.read_bytes().startswith(b"\x89PNG")
    lines = {panel.title: panel.lines for panel in made.pictures["compress"].panels}
    assert list(lines) == [
        f"{what}, ratio {ratio}" for what in ("latency", "throughput") for ratio in (0.5, 0.25)
    ]
    for named in lines.values():
        assert list(named) == ["words, 1 client", "words, 2 clients"]
        assert all([tokens for tokens, _ in points] == [50, 200] for points in named.values())


def test_inputs_differ_and_have_the_size_that_was_asked_for() -> None:
    text = made_up(3000)
    bodies = [json.loads(body) for body in call(Scenario(None, 1, 0.5, 1), text, 2900).bodies]
    assert {len(body["input"]) for body in bodies} == {2900}
    assert len({body["input"] for body in bodies}) == len(bodies)
    assert all("model" not in body for body in bodies)


async def test_a_request_that_fails_is_no_figure() -> None:
    async with FakeServer(fails_from=5).listening() as server:
        with pytest.raises(Failed, match=r"/v1/compress: 503"):
            await measured(arguments([*SHORT, "--url", server.url]))


def test_a_ratio_above_one_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(["--ratios", "0.5,2"])
    assert "2 is above 1" in capsys.readouterr().err
    assert len(scenarios(arguments([]))) == 18
