"""A part as a process of its own: its rows are taken as they come, and it is ended with all that it started."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.parts import Part
from benchmarks.gpu_check.record import Outcome

LAST_CHARACTERS = 600
STOP_S = 15.0
POLL_S = 0.5
MARK = "PITH_GPU_CHECK"


def run(part: Part, device: str, outcome: Outcome, on_rows: Callable[[list[dict[str, Any]]], None]) -> None:
    """Fills `outcome`; `on_rows` is given new rows when they are there. A KeyboardInterrupt ends the part, and is
    raised again."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pith-gpu-") as folder:
        rows, log = Path(folder) / "rows.jsonl", Path(folder) / "log"

        def take() -> None:
            outcome.seconds = time.monotonic() - began
            if new := whole_rows(rows)[len(outcome.rows) :]:
                outcome.rows += new
                on_rows(new)

        command = [sys.executable, "-m", part.module, *part.words, "--device", device]
        command += ["--rows", str(rows), "--folder", folder]
        try:
            with log.open("wb") as said:
                reason = follow(command, said, part, take)
        except KeyboardInterrupt:
            take()
            outcome.state, outcome.reason = "stopped", "before it was done"
            raise
        take()
        outcome.state = "failed" if reason else "done"
        if reason:
            last = log.read_text(encoding="utf-8", errors="replace")[-LAST_CHARACTERS:]
            outcome.reason = f"{reason}: {' '.join(last.split())}"


def whole_rows(file: Path) -> list[dict[str, Any]]:
    """Without the last line, while it is being written."""
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def follow(command: list[str], said: Any, part: Part, on_poll: Callable[[], None]) -> str:
    """Why it failed; empty where it did not. Nothing that it started is left afterwards."""
    mark, deadline = secrets.token_hex(8), time.monotonic() + part.limit_s
    process = subprocess.Popen(
        command, stdout=said, stderr=said, start_new_session=True, env={**os.environ, MARK: mark}
    )
    try:
        while process.poll() is None:
            if time.monotonic() > deadline:
                return f"not done after {part.limit_s:g} s"
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_S)
            on_poll()
        return f"exit status {process.returncode}" if process.returncode else ""
    finally:
        end(process, mark, elsewhere=part.starts_sessions)


def end(process: subprocess.Popen[bytes], mark: str, *, elsewhere: bool) -> None:
    """It may stop what it started by itself, and the rest is killed: its group, and `elsewhere` what has a session of
    its own and `mark` in its environment."""
    started = _marked(process.pid, mark) if elsewhere else []
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, number)
            process.wait(STOP_S)
    if started:
        _kill(started)


def _marked(pid: int, mark: str) -> list[Any]:
    from benchmarks.load.processes import marked

    return [one for one in marked(MARK, mark, pid) if one.pid != pid]


def _kill(processes: list[Any]) -> None:
    import psutil

    for one in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(processes, timeout=STOP_S)
