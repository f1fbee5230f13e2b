"""Short runs of `tests.lifecycle`, each in a process that may fork: restarts and reloads fail nobody, a kill does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

KILLED = """
import signal, sys
from pathlib import Path
from tests.lifecycle import restarted
outcomes, _ = restarted(Path(sys.argv[1]), 3, 8, by=signal.SIGKILL)
print(sorted(outcomes))
"""


def said(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=600, check=False)


def test_restarts_and_reloads_fail_no_request() -> None:
    done = said("-m", "tests.lifecycle", "--restarts", "3", "--reloads", "2", "--each", "8")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("books: clean") == 2


def test_requests_that_a_killed_server_carried_are_counted_as_failed(tmp_path: Path) -> None:
    done = said("-c", KILLED, str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "'200'" in done.stdout and done.stdout.strip() != "['200']"
