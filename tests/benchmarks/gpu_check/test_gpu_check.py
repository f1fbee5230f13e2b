"""The check of a GPU, as far as a machine without one can tell: parts by themselves, limits, and what is written."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from benchmarks.gpu_check.__main__ import MARK, Outcome, arguments, main, markdown, run, wait
from benchmarks.gpu_check.checkpoint import SHAPES
from benchmarks.gpu_check.engine import TRIED
from benchmarks.gpu_check.parts import PARTS, Part

ROOT = Path(__file__).resolve().parents[3]


def test_all_parts_together_take_less_than_25_minutes() -> None:
    assert sum(part.limit_s for part in PARTS) <= 25 * 60 - 30


def test_the_page_has_each_part_with_its_limit() -> None:
    page = (ROOT / "docs/gpu.md").read_text(encoding="utf-8")
    for part in PARTS:
        (row,) = (line for line in page.splitlines() if line.startswith(f"| `{part.name}` |"))
        assert row.endswith(f"| {part.limit_s:.0f} s |")
    assert f"{sum(part.limit_s for part in PARTS):,.0f}\nseconds in all" in page


def test_what_is_not_installed_is_a_reason_and_no_failure() -> None:
    part = Part("p", "", "m", (), 1, ("json", "no_such_package"))
    assert part.skipped() == "not installed: no_such_package"
    outcome = run(part, arguments(["--device", "cpu"]))
    assert (outcome.state, outcome.reason, outcome.rows) == ("skipped", part.skipped(), [])


@pytest.mark.parametrize(
    ("command", "limit_s", "reason"),
    [
        ("exit 0", 30, ""),
        ("exit 3", 30, "exit status 3"),
        ("sleep 60 & sleep 60", 0.1, "not done after 0.1 s"),
    ],
)
def test_a_part_ends_within_its_limit_with_all_that_it_started(
    command: str, limit_s: float, reason: str
) -> None:
    process = subprocess.Popen(["sh", "-c", command], start_new_session=True)
    assert wait(process, limit_s, "no such mark") == reason
    assert process.poll() is not None


def test_what_a_part_started_in_sessions_of_their_own_ends_with_it(tmp_path: Path) -> None:
    number = tmp_path / "pid"
    command = f"setsid sh -c 'echo $$ > {number}; exec sleep 60' & until [ -s {number} ]; do sleep 0.01; done; sleep 60"
    process = subprocess.Popen(["sh", "-c", command], start_new_session=True, env={**os.environ, MARK: "m"})
    deadline = time.monotonic() + 100
    while not (number.is_file() and number.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    started = psutil.Process(int(number.read_text()))
    assert wait(process, 0.1, "m") == "not done after 0.1 s"
    assert not started.is_running() or started.status() == psutil.STATUS_ZOMBIE


def test_figures_are_tables_that_can_be_pasted() -> None:
    rows = [{"what": "JSON", "clients": 1, "ms": 12.345}, {"what": "SSE", "tokens_per_s": 12345.6}]
    failed = Outcome("engine", "vLLM alone", "failed", 9.0, "exit status 1: a | b")
    text = markdown({"device": "H100"}, [Outcome("service", "HTTP", "done", 61.2, "", rows), failed])
    assert "| what | clients | ms | tokens_per_s |" in text
    assert "| JSON | 1 | 12.3 |  |" in text and "| SSE |  |  | 12,346 |" in text
    assert "| engine | vLLM alone | 9 | failed: exit status 1: a \\| b |" in text


@pytest.mark.integration
def test_an_engine_measures_on_this_machine(tmp_path: Path) -> None:
    out = tmp_path / "found"
    assert main(["--device", "cpu", "--parts", "engine", "--out", str(out)]) == 0
    (part,) = json.loads(out.with_suffix(".json").read_text())["parts"]
    assert [(row["feature"], row["clients"]) for row in part["rows"]] == [
        (feature, clients) for feature in TRIED for clients in (1, 2)
    ]
    assert all(row["tokens_per_s"] > 0 and row["ttft_ms"] > 0 for row in part["rows"])
    # A GiB of a cache with 1,024 bytes a token, twice those of 16 bits a number.
    assert {row["cache_tokens"] for row in part["rows"]} == {2**30 // (2 * SHAPES["cpu"].cache_bytes)}


@pytest.mark.integration
def test_a_part_measures_on_this_machine(tmp_path: Path) -> None:
    out = tmp_path / "found"
    assert main(["--device", "cpu", "--parts", "encoder", "--out", str(out)]) == 0
    (part,) = json.loads(out.with_suffix(".json").read_text())["parts"]
    assert (part["state"], len(part["rows"])) == ("done", 4)
    assert {row["dtype"] for row in part["rows"]} == {"float32", "bfloat16"}
    assert "a trial of the code" in json.loads(out.with_suffix(".json").read_text())["facts"]["device"]
    assert all(row["tokens_per_s"] > 0 for row in part["rows"])
