"""`benchmarks.overhead` on fake servers: one works at a time, ratios are of neighbours, who cannot run says why."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from benchmarks.load.exchange import Failed
from benchmarks.load.loop import Window
from benchmarks.load.sample import Figures, Run, Sample
from benchmarks.load.server import ROOT, CannotRun, Server, free_port
from benchmarks.overhead import comparison
from benchmarks.overhead.__main__ import arguments, scenarios
from benchmarks.overhead.engine import read_engine
from benchmarks.overhead.rounds import Comparison, Runner, Scenario, order
from benchmarks.overhead.sides import Side, require_memory

FAKE = ("-m", "tests.benchmarks.load.fake_server")
WINDOW = Window(0.1, 0.8)
JSON, SSE = Scenario(False, 2), Scenario(True, 1)


def fake_side(name: str, folder: Path, token_s: float) -> Side:
    port = free_port()
    (folder / name).mkdir()
    command = [sys.executable, *FAKE, str(port), str(token_s)]
    environment = {"PYTHONPATH": str(ROOT)}
    server = Server(name, "fake", command, environment, folder / name, f"http://127.0.0.1:{port}", start_s=30)
    return Side(name, (server,), 0.01)


def runner(*sides: Side, stop_idle: bool = False, tell: Callable[[str], None] = lambda text: None) -> Runner:
    return Runner({side.name: side for side in sides}, WINDOW, stop_idle, tell)


async def test_sides_take_turns_and_idle_ones_are_paused(tmp_path: Path) -> None:
    fast, slow = fake_side("fast", tmp_path, 0.0005), fake_side("slow", tmp_path, 0.002)
    both = runner(fast, slow)
    try:
        steps = list(order(["fast", "slow"], [JSON, SSE], 2, by_side=False))
        result = await both.run(steps, advance=lambda: None)
        idle = next(side for side in (fast, slow) if side is not both.current)
        [process] = idle.front.processes()
        assert process.status() == psutil.STATUS_STOPPED
    finally:
        both.close()
    assert not psutil.pid_exists(process.pid)
    assert {side: {s: len(runs) for s, runs in of.items()} for side, of in result.runs.items()} == {
        "fast": {JSON: 2, SSE: 2},
        "slow": {JSON: 2, SSE: 2},
    }
    faster = comparison.ratios(
        result.runs["fast"][JSON], result.runs["slow"][JSON], lambda r: r.requests_per_s
    )
    assert len(faster) == 2
    assert all("other" in run.cpu_s for run in result.runs["fast"][JSON])

    made = comparison.report(result, [JSON, SSE], ["slow"], {"command": "the command"})
    as_json, as_text, *pictures = made.write(tmp_path / "out")
    sides = json.loads(as_json.read_text())["sides"]
    assert len(sides["fast"][str(SSE)][0]["samples"][0]["arrivals_ms"]) == 64
    assert "Against slow" in as_text.read_text()
    assert [path.name for path in pictures] == ["overhead-json.png", "overhead-sse.png"]


async def test_with_stop_idle_only_one_side_is_up(tmp_path: Path) -> None:
    first, second = fake_side("first", tmp_path, 0), fake_side("second", tmp_path, 0)
    alone = runner(first, second, stop_idle=True)
    try:
        await alone.run([("first", JSON), ("second", JSON)], advance=lambda: None)
        assert first.front.process is None
        assert second.front.process is not None
    finally:
        alone.close()


async def test_a_side_that_cannot_start_says_why_and_the_others_go_on(tmp_path: Path) -> None:
    broken = fake_side("broken", tmp_path, 0)
    broken.front.command = [sys.executable, "-c", "raise SystemExit('no such engine')"]
    good = fake_side("good", tmp_path, 0)
    some = runner(broken, good)
    try:
        result = await some.run([("broken", JSON), ("good", JSON), ("broken", JSON)], advance=lambda: None)
    finally:
        some.close()
    assert list(result.runs) == ["good"]
    assert "broken ended with 1: no such engine" in result.absent["broken"]
    assert "not measured: broken: " in "\n".join(comparison.lines(result, [JSON], ["good"]))


async def test_a_side_that_dies_in_the_comparison_ends_it_without_a_report(tmp_path: Path) -> None:
    side = fake_side("mortal", tmp_path, 0)
    one = runner(side)
    try:
        await one.run([("mortal", JSON)], advance=lambda: None)
        assert side.front.process is not None
        side.front.process.kill()
        side.front.process.wait()
        with pytest.raises(Failed, match="mortal, JSON"):
            await one.run([("mortal", JSON)], advance=lambda: None)
    finally:
        one.close()


def test_the_order_turns_from_round_to_round() -> None:
    steps = [side for side, _ in order(["a", "b", "c"], [JSON], 3, by_side=False)]
    assert steps == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    by_side = list(order(["a", "b"], [JSON, SSE], 1, by_side=True))
    assert by_side == [("a", JSON), ("a", SSE), ("b", JSON), ("b", SSE)]


def test_ratios_are_of_the_same_round_and_carry_their_spread() -> None:
    def run(requests: int) -> Run:
        return Run(1.0, tuple(Sample(0.0, 10.0, Figures(16)) for _ in range(requests)), {"engine": 1.0})

    result = Comparison({"pith": {JSON: [run(8), run(30)]}, "bare vLLM": {JSON: [run(10), run(40)]}})
    text = "\n".join(comparison.ratio_lines(result, JSON, "bare vLLM"))
    assert "| pith | 0.78 (0.75 to 0.80) |" in text


def test_too_little_memory_is_a_reason_not_to_run() -> None:
    with pytest.raises(CannotRun, match="giant needs about 1e\\+06 GiB of memory"):
        require_memory("giant", 1e6)


def test_the_bare_engine_gets_the_engine_arguments_of_the_configuration(tmp_path: Path) -> None:
    engine = read_engine(ROOT / "configs/tiny.yaml", tmp_path)
    words = engine.words()
    assert engine.model == "pith-mini"
    assert words[words.index("--model") + 1] == str(tmp_path / "pith-mini")
    assert words[words.index("--max-model-len") + 1] == "16384"
    assert words[words.index("--max-num-seqs") + 1] == "64"
    assert "--enforce-eager" in words
    assert json.loads(words[words.index("--structured-outputs-config") + 1])["backend"] == "xgrammar"
    assert engine.environment["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"


def test_a_configuration_without_models_is_named(tmp_path: Path) -> None:
    (tmp_path / "none.yaml").write_text("models: []\n")
    with pytest.raises(SystemExit, match=r"none\.yaml: no model to measure"):
        read_engine(tmp_path / "none.yaml", tmp_path)


def test_scenarios_follow_the_arguments_and_an_unknown_side_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = [str(s) for s in scenarios(arguments(["--clients", "1,64"]))]
    assert found == [
        "JSON, 16 tokens, 1 client",
        "JSON, 16 tokens, 64 clients",
        "SSE, 64 tokens, 1 client",
        "SSE, 64 tokens, 64 clients",
    ]
    with pytest.raises(SystemExit):
        arguments(["--sides", "bare,theirs"])
    assert "'theirs' is none of bare, pith, ray" in capsys.readouterr().err
