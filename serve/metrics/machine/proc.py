"""The processes of this machine as `/proc` has them, read in one pass: a scrape reads them all."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Process:
    """`cpu_s` is its own time, `reaped_cpu_s` that of its children that have ended, and of theirs."""

    pid: int
    parent: int
    cpu_s: float
    reaped_cpu_s: float
    resident_bytes: int


def processes() -> dict[int, Process]:
    """By id. Those that end meanwhile are left out."""
    found = {}
    for name in os.listdir(PROC):
        if name.isdigit():
            try:
                found[int(name)] = parsed((PROC / name / "stat").read_bytes())
            except (OSError, ValueError, IndexError):
                continue
    return found


def parsed(stat: bytes) -> Process:
    """A line of `/proc/PID/stat`. Its second field is a name, which may hold blanks and brackets."""
    pid = int(stat[: stat.index(b" ")])
    fields = stat[stat.rindex(b")") + 2 :].split()
    own, reaped = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
    return Process(pid, int(fields[1]), own / TICKS, reaped / TICKS, int(fields[21]) * PAGE_BYTES)


def descendants(of: Iterable[int], found: Mapping[int, Process], *, but_for: frozenset[int]) -> list[Process]:
    """What these processes have started, and what that has; a branch ends at a process of `but_for`."""
    children: dict[int, list[Process]] = {}
    for process in found.values():
        children.setdefault(process.parent, []).append(process)
    below: list[Process] = []
    queue = list(of)
    while queue:
        for child in children.get(queue.pop(), ()):
            if child.pid not in but_for:
                below.append(child)
                queue.append(child.pid)
    return below


def open_files(pid: int) -> int:
    """File descriptors; 0 of a process that has ended."""
    try:
        return len(os.listdir(PROC / str(pid) / "fd"))
    except OSError:
        return 0


def most_open_files(pid: int) -> float | None:
    """What the process may open at most; None of one that has ended."""
    try:
        lines = (PROC / str(pid) / "limits").read_text().splitlines()
    except OSError:
        return None
    soft = next((line.split()[3] for line in lines if line.startswith("Max open files")), "unlimited")
    return float("inf") if soft == "unlimited" else float(soft)
