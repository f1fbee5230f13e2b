"""A few of the faults of `python -m tests.single_faults`, each in every way."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Of the settlement, of the answer, and what once made the ledger read only for as long as its process ran.
STEPS = ("INSERT INTO usage_events", "create ledger.db-shm", "a part of the reply")


def test_a_chat_and_its_books_agree_whatever_one_step_of_it_comes_to() -> None:
    if shutil.which("gcc") is None and not os.environ.get("CI"):
        pytest.skip("gcc was not found; install it (Debian: apt-get install gcc)")
    only = [part for step in STEPS for part in ("--only", step)]
    command = [sys.executable, "-m", "tests.single_faults", "--path", "chat", *only]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = re.search(r"chat: (\d+) steps, (\d+) faults, 0 with violations", ran.stdout)
    assert found is not None, ran.stdout
    steps, faults = map(int, found.groups())
    # Those that were counted are printed, each on a line of its own, in their order.
    numbers = [int(line.split()[1]) for line in ran.stdout.splitlines() if re.match(r"chat +\d", line)]
    assert numbers == list(range(1, steps + 1)) and steps > 100
    assert faults == 6 * len(STEPS)
