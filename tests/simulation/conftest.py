"""The many schedules run beside the other tests, at the lowest priority; the test that wants them waits for them."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIRST_SEED, MANY = 10**6, 100_000
PR_SET_PDEATHSIG = 1
STARTED = pytest.StashKey["Campaign"]()


class Campaign:
    """A process of its own, and what it printed."""

    def __init__(self) -> None:
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115 - `stop` closes it.
        command = [sys.executable, "-m", "tests.simulation"]
        self._process = subprocess.Popen(
            [*command, "--schedules", str(MANY), "--seed", str(FIRST_SEED)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=self._output,
            stderr=subprocess.STDOUT,
            # To be ended as one, and not to outlive tests that are killed.
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
        os.setpriority(os.PRIO_PGRP, self._process.pid, 19)
        # Where the kernel shares processors between sessions first, a session has a priority of its own.
        with suppress(OSError):
            Path(f"/proc/{self._process.pid}/autogroup").write_text("19")

    def ended(self) -> tuple[int, str]:
        """Its exit status and output, once it is done."""
        status = self._process.wait()
        self._output.seek(0)
        return status, self._output.read()

    def stop(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._output.close()


def end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def pytest_collection_finish(session: pytest.Session) -> None:
    wanted = any("campaign" in getattr(item, "fixturenames", ()) for item in session.items)
    if wanted and not session.config.option.collectonly:
        started(session.config)


def started(config: pytest.Config) -> Campaign:
    if STARTED not in config.stash:
        config.stash[STARTED] = campaign = Campaign()
        config.add_cleanup(campaign.stop)
    return config.stash[STARTED]


@pytest.fixture(scope="session")
def campaign(request: pytest.FixtureRequest) -> Campaign:
    return started(request.config)
