"""Time that the server takes to be ready, by stage, the memory of its processes, and the time that it takes to stop.

    python -m benchmarks.startup [--config configs/embedded.yaml] [--runs 3]

Each run starts `pith serve` on a free port with the state that the configuration names.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from benchmarks.load.processes import held, role_of, tree
from benchmarks.load.server import free_port

READY_S = 900


@dataclass(frozen=True)
class Run:
    """Seconds to ready, to the first completion after it, and to stop; by role MiB, CPU seconds up to ready and
    when its first process began. `steps` are the server's own lines and their times."""

    ready_s: float
    first_reply_s: float
    stop_s: float
    processes: dict[str, int]
    memory_mib: dict[str, float]
    cpu_s: dict[str, float]
    born_s: dict[str, float]
    steps: list[tuple[float, str]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, default=Path("configs/embedded.yaml"))
    parser.add_argument("--runs", type=int, default=3, choices=range(1, 11), metavar="1..10")
    arguments = parser.parse_args()
    runs = [measure(arguments.config) for _ in range(arguments.runs)]
    print(report(runs))
    print(json.dumps([vars(run) for run in runs]))


def measure(config: Path) -> Run:
    """One start, one completion, one stop."""
    port = free_port()
    began, began_at = time.monotonic(), time.time()
    steps: list[tuple[float, str]] = []
    pith = Path(sys.executable).with_name("pith")
    with subprocess.Popen(
        [str(pith), "serve", "--config", str(config), "--port", str(port), "--ops-port", str(free_port())],
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            key = wait_until_ready(server, lambda line: steps.append((time.monotonic() - began, line)))
            ready_s = time.monotonic() - began
            cpu_s, born_s = spent_by_role(server.pid, began_at)
            first_reply_s = time_one_completion(port, key)
            processes, memory = memory_by_role(server.pid)
        finally:
            began = time.monotonic()
            server.send_signal(signal.SIGINT)
            server.wait(60)
    stop_s = time.monotonic() - began
    return Run(ready_s, first_reply_s, stop_s, processes, memory, cpu_s, born_s, steps)


def wait_until_ready(server: subprocess.Popen[str], on_step: Callable[[str], None]) -> str:
    """Read what the server prints until it names the demo key's file; returns the key. Raises `RuntimeError` when it
    ends or takes too long."""
    assert server.stdout is not None
    watchdog = threading.Timer(READY_S, server.kill)
    watchdog.start()
    try:
        for line in server.stdout:
            print(line, end="", file=sys.stderr)
            if step := re.fullmatch(r"\[.*?\] (?!still )(.*) …", line.strip()):
                on_step(step[1])
            if found := re.search(r"key file\s+(.+) \(mode", line):
                return Path(found[1]).read_text(encoding="ascii").strip()
    finally:
        watchdog.cancel()
    raise RuntimeError(f"the server ended before it was ready (exit code {server.wait()})")


def time_one_completion(port: int, key: str) -> float:
    began = time.monotonic()
    reply = httpx.post(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        headers={"Authorization": f"Bearer {key}"},
        json={"messages": [{"role": "user", "content": "Tell me about the river."}], "max_tokens": 16},
        timeout=120,
    )
    reply.raise_for_status()
    return time.monotonic() - began


def memory_by_role(pid: int) -> tuple[dict[str, int], dict[str, float]]:
    """Processes and MiB by role. Memory is the proportional set: shared pages are split among those who share."""
    processes: dict[str, int] = {}
    memory: dict[str, float] = {}
    for process in held(tree(pid)):
        processes[process.role] = processes.get(process.role, 0) + 1
        memory[process.role] = memory.get(process.role, 0) + process.memory_mib
    return processes, memory


def spent_by_role(pid: int, began_at: float) -> tuple[dict[str, float], dict[str, float]]:
    """CPU seconds of each role, and seconds from the start to its first process. Processes that have ended are
    not among them."""
    cpu_s: dict[str, float] = {}
    born_s: dict[str, float] = {}
    for process in tree(pid):
        try:
            role, times, born = role_of(process), process.cpu_times(), process.create_time() - began_at
        except psutil.Error:
            continue
        cpu_s[role] = cpu_s.get(role, 0.0) + times.user + times.system
        born_s[role] = min(born_s.get(role, born), born)
    return cpu_s, born_s


def timeline(run: Run) -> list[str]:
    """What began when, of one run: the server's own steps, and its processes."""
    began = [*run.steps, *((born, f"first process: {role}") for role, born in run.born_s.items())]
    rows = [f"| {max(0.0, at):.1f} s | {what} |" for at, what in sorted(began)]
    return ["", "| began at | what (first run) |", "|---|---|", *rows, f"| {run.ready_s:.1f} s | ready |"]


def report(runs: list[Run]) -> str:
    """A Markdown table of medians."""
    cpu = f"{psutil.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB, {platform.machine()}"
    rows = [
        f"Machine: {cpu}, Python {platform.python_version()}; median of {len(runs)} runs.",
        "",
        "| what | figure |",
        "|---|---|",
        f"| start to ready | {statistics.median(run.ready_s for run in runs):.1f} s |",
        f"| first completion after that, 16 tokens | {statistics.median(run.first_reply_s for run in runs):.2f} s |",
        f"| Ctrl-C to the last process gone | {statistics.median(run.stop_s for run in runs):.1f} s |",
    ]
    for role in sorted(runs[0].memory_mib, key=lambda role: -runs[0].memory_mib[role]):
        size = statistics.median(run.memory_mib.get(role, 0) for run in runs)
        cpu_s = statistics.median(run.cpu_s.get(role, 0) for run in runs)
        number = runs[0].processes[role]
        rows.append(f"| {role}, {number} of them: memory, CPU up to ready | {size:.0f} MiB, {cpu_s:.1f} s |")
    total = statistics.median(sum(run.memory_mib.values()) for run in runs)
    return "\n".join([*rows, f"| memory: all | {total:.0f} MiB |", *timeline(runs[0])])


if __name__ == "__main__":
    main()
