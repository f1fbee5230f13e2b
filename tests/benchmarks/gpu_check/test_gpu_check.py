"""The check of a GPU, as far as a machine without one can tell: parts by themselves, limits, and what is written."""

from __future__ import annotations

import json
import subprocess
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
import torch

from benchmarks.gpu_check.__main__ import main
from benchmarks.gpu_check.checkpoint import SHAPES
from benchmarks.gpu_check.engine import TRIED
from benchmarks.gpu_check.measured import Attempts
from benchmarks.gpu_check.networks import TOO_MUCH, each
from benchmarks.gpu_check.parts import Part
from benchmarks.gpu_check.record import Outcome, Record
from benchmarks.gpu_check.running import follow, whole_rows


def shell(command: str, limit_s: float, *, starts_sessions: bool = False) -> str:
    """Why a part that is this command failed."""
    part = Part("p", "", "", (), limit_s, starts_sessions=starts_sessions)
    return follow(["sh", "-c", command], subprocess.DEVNULL, part, lambda: None)


@pytest.mark.parametrize(
    ("command", "limit_s", "reason"),
    [
        ("exit 0", 60, ""),
        ("exit 3", 60, "exit status 3"),
        ("sleep 60 & sleep 60", 0.1, "not done after 0.1 s"),
    ],
)
def test_a_part_ends_within_its_limit(command: str, limit_s: float, reason: str) -> None:
    assert shell(command, limit_s) == reason


@pytest.mark.parametrize("apart", [False, True])
def test_what_a_part_started_ends_with_it(tmp_path: Path, apart: bool) -> None:
    number, setsid = tmp_path / "pid", "setsid" if apart else ""
    started = (
        f"{setsid} sh -c 'echo $$ > {number}; exec sleep 60' & until [ -s {number} ]; do sleep 0.01; done"
    )
    assert shell(f"{started}; exit 5", 60, starts_sessions=apart) == "exit status 5"
    deadline = time.monotonic() + 30
    while runs(int(number.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_an_attempt_that_fails_stops_no_other_and_is_said_at_the_end() -> None:
    attempts, done = Attempts(), []
    for what in ("one", "two"):
        with attempts.at(what):
            done.append(what)
            raise ValueError(f"no {what}")
    with pytest.raises(
        SystemExit, match="no figures, or not all: one: ValueError no one; two: ValueError no two"
    ):
        attempts.conclude()
    assert done == ["one", "two"]


def test_a_batch_that_the_gpu_has_no_memory_for_is_a_row_and_the_next_is_tried(tmp_path: Path) -> None:
    def run(texts: Sequence[str]) -> None:
        if len(texts) == 1:
            raise torch.OutOfMemoryError

    options = Namespace(device="cpu", rows=tmp_path / "rows")
    each(options, "float32", lambda text: len(text.split()), run, (1, 2), batch_tokens=1024)
    first, second = whole_rows(options.rows)
    known = {"dtype": "float32", "batch_tokens": 1024}
    assert first == {**known, "inputs": 1, "tokens": 40, "tokens_per_s": TOO_MUCH}
    assert (second["inputs"], second["tokens_per_s"] > 0) == (2, True)


def test_a_row_is_taken_when_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    assert whole_rows(file) == []
    file.write_text('{"ms": 1}\n{"ms"')
    assert whole_rows(file) == [{"ms": 1}]


def test_figures_are_tables_that_can_be_pasted(tmp_path: Path) -> None:
    rows = [{"what": "JSON", "clients": 1, "ms": 12.345}, {"what": "SSE", "tokens_per_s": 12345.6}]
    failed = Outcome("engine", "vLLM alone", "failed", 9.0, "exit status 1: a | b")
    record = Record(tmp_path / "new/found", {"device": "H100"})
    record.outcomes += [Outcome("service", "HTTP", "done", 61.2, "", rows), failed]
    record.write()
    text = record.out.with_suffix(".md").read_text()
    assert {file.name for file in record.out.parent.iterdir()} == {"found.json", "found.md"}
    assert "| what | clients | ms | tokens_per_s |" in text
    assert "| JSON | 1 | 12.3 |  |" in text and "| SSE |  |  | 12,346 |" in text
    assert "| engine | vLLM alone | 9 | failed: exit status 1: a \\| b |" in text


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.integration
def test_a_part_measures_on_this_machine(tmp_path: Path) -> None:
    out = tmp_path / "found"
    assert main(["--device", "cpu", "--parts", "encoder", "--out", str(out)]) == 0
    (part,) = json.loads(out.with_suffix(".json").read_text())["parts"]
    assert (part["state"], len(part["rows"])) == ("done", 6)
    assert {row["dtype"] for row in part["rows"]} == {"float32", "bfloat16"}
    assert "a trial of the code" in json.loads(out.with_suffix(".json").read_text())["facts"]["device"]
    assert all(row["tokens_per_s"] > 0 for row in part["rows"])
