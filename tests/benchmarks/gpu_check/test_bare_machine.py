"""The check on a machine that has torch, transformers and what these bring, and this repository without `.venv`."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import venv
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from benchmarks.gpu_check.networks import SIZES, filling, sweep
from tests.clients.environments import link

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 300
# Of a part, on a CPU.
ROWS = sum(len(filling("cpu", budget)) for budget, _ in sweep("cpu"))


def test_batches_of_a_gpu_are_swept_from_1024_to_65536_tokens_in_both_precisions() -> None:
    budgets = [1024, 2048, 4096, 8192, 16384, 32768, 65536]
    assert [*sweep("cuda")] == [(budget, dtype) for budget in budgets for dtype in ("float32", "bfloat16")]
    _, _, batches, _, _ = SIZES["cuda"]
    assert filling("cuda", budgets[0]) == batches
    assert all(batches[-1] in filling("cuda", budget) for budget in budgets)


def brought_by(*packages: str) -> set[str]:
    """These and all that they require."""
    found: set[str] = set()
    left = [*packages]
    while left:
        name = re.sub(r"[-_.]+", "-", left.pop()).lower()
        if name not in found:
            found.add(name)
            needs = [Requirement(need) for need in distribution(name).requires or []]
            left += [
                need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})
            ]
    return found


class Machine:
    """`folder` has the repository's copy `pith`, and `python` with these packages alone."""

    def __init__(self, folder: Path) -> None:
        self.pith, self.python = folder / "pith", folder / "python"
        venv.create(self.python, symlinks=True)
        site = next(self.python.glob("lib/python*/site-packages"))
        for package in brought_by("torch", "transformers"):
            link(package, site)
        self.pith.mkdir()
        shutil.copyfile(ROOT / "pyproject.toml", self.pith / "pyproject.toml")
        shutil.copytree(ROOT / "scripts", self.pith / "scripts")
        for package in ("benchmarks", "compression"):
            shutil.copytree(ROOT / package, self.pith / package, ignore=shutil.ignore_patterns("*-venv"))

    def start(self, *command: str) -> subprocess.Popen[str]:
        path = f"{self.python / 'bin'}:{os.environ['PATH']}"
        # Where the tests run, there may be a GPU.
        given = {**os.environ, "PATH": path, "TMPDIR": str(self.pith), "CUDA_VISIBLE_DEVICES": ""}
        return subprocess.Popen(
            command,
            cwd=self.pith,
            env=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *command: str) -> tuple[int, str]:
        process = self.start(*command)
        said, _ = process.communicate(timeout=LIMIT_S)
        return process.returncode, said

    def written(self) -> dict[str, Any]:
        """What came of each part."""
        whole = json.loads((self.pith / "var/gpu-check.json").read_text(encoding="utf-8"))
        return {part["part"]: part for part in whole["parts"]}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("machine"))


def test_networks_are_measured_with_torch_and_transformers_alone(machine: Machine) -> None:
    code, said = machine.run("python3", "-m", "benchmarks.gpu_check", "--device", "cpu")
    assert code == 0, said
    written = machine.written()
    measured = {name: len(part["rows"]) for name, part in written.items() if part["state"] == "done"}
    assert measured == {"classifier": ROWS, "encoder": ROWS}
    left_out = {name: part["reason"] for name, part in written.items() if part["state"] == "skipped"}
    assert left_out == {
        "llmlingua": "not installed: llmlingua",
        "engine": "not installed: vllm, psutil",
        "service": "not installed: vllm, ray, psutil",
    }
    assert said.count("tokens_per_s") == 2 * ROWS and "engine: skipped: not installed" in said


def test_without_a_gpu_each_part_says_so(machine: Machine) -> None:
    code, said = machine.run("sh", "scripts/gpu-check", "--parts", "classifier", "encoder")
    assert code == 1
    for part in machine.written().values():
        assert (part["state"], part["rows"]) == ("skipped", [])
        assert part["reason"].startswith("torch has no GPU here: ") and part["reason"] in said


@pytest.mark.parametrize(
    ("number", "code", "state"),
    [(signal.SIGTERM, 130, "stopped"), (signal.SIGKILL, -signal.SIGKILL, "running")],
)
def test_what_was_measured_before_it_is_ended_is_in_the_file(
    machine: Machine, number: signal.Signals, code: int, state: str
) -> None:
    with machine.start("python3", "-u", "-m", "benchmarks.gpu_check", "--device", "cpu") as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(number)
        assert process.wait(LIMIT_S) == code
    written = machine.written()
    assert "tokens_per_s" in first and written["classifier"]["rows"]
    # The networks take a second and to begin a few: the first part may be done.
    assert [*written.values()][-1]["state"] == state
