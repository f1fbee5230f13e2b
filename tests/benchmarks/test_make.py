"""What `make` hands to the benchmarks."""

from __future__ import annotations

import subprocess

import pytest

from benchmarks.load.server import ROOT

ALONE = ("bench-quality", "bench-ledger", "bench-overhead", "bench-soak", "bench-compress")


def dry(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True)


def test_all_benchmarks_together_take_no_options_since_theirs_differ() -> None:
    done = dry("bench", "ARGS=--seconds 1")
    assert done.returncode == 2
    assert "make bench takes no ARGS" in done.stderr


@pytest.mark.parametrize("target", ALONE)
def test_one_benchmark_takes_options(target: str) -> None:
    last = dry(target, "ARGS=--out elsewhere").stdout.splitlines()[-1]
    assert last.endswith("--out elsewhere")
