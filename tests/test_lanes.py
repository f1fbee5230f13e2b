"""What the fast lane leaves out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_what_is_named_as_thorough_is_not_in_the_fast_lane() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    lane = ["-m", "not integration and not thorough", "tests/patterns"]
    done = subprocess.run([*command, *lane], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 5 and "no tests collected" in done.stdout, done.stdout + done.stderr
