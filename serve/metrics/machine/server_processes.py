"""Processor time, memory and open files of the server's processes, under the names that Prometheus' clients use."""

import os
from collections.abc import Iterable
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from serve.metrics.machine.proc import Process, descendants, most_open_files, open_files, processes
from serve.processes.roll import Member, members, started_at

SERVER, RAY = "server", "ray"
# What a process has started is shown together: an engine's core, a compressor's workers.
BELOW = {"replica": "engine", "compressor": "workers", "retrieval": "workers"}
LABELS = ["process", "model", "replica"]


class ServerProcesses(Collector):
    """Of this process, of those on the roll in `folder`, and of all that they have started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self) -> Iterable[Metric]:
        found, families = processes(), _Families()
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


class _Families:
    def __init__(self) -> None:
        self._cpu = CounterMetricFamily(
            "process_cpu_seconds", "Processor time, of user and system.", labels=LABELS
        )
        self._memory = GaugeMetricFamily(
            "process_resident_memory_bytes",
            "Memory in use; pages that processes share count in each.",
            labels=LABELS,
        )
        self._files = GaugeMetricFamily("process_open_fds", "Open file descriptors.", labels=LABELS)
        self._most_files = GaugeMetricFamily(
            "process_max_fds", "File descriptors that it may open.", labels=LABELS
        )
        self._started = GaugeMetricFamily(
            "process_start_time_seconds", "When it began, in seconds since 1970.", labels=LABELS
        )
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
