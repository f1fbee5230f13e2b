"""The processes of a server by role: their CPU seconds, memory and open files, read from the system, not from it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import psutil

MIB = 2**20
GENERATOR = "load generator"
ROLES = (
    (r"VLLM::EngineCore", "vLLM engine core"),
    (r"VLLM::Worker", "vLLM worker"),
    (r"VLLM::CoreForks|multiprocessing\.forkserver", "what engine cores are forked from"),
    (r"vllm\.entrypoints", "vLLM API server"),
    (r"ServeReplica:model|ServeReplica\S*LLMServer", "engine replica"),
    (r"ServeReplica:ingress|ServeReplica\S*[Ii]ngress", "ingress replica"),
    (r"ServeReplica", "other replica"),
    (r"compression\.workers", "compression workers"),
    (r"haproxy", "HAProxy"),
    (r"ProxyActor|ServeProxy", "Ray Serve proxy"),
    (r"ServeController", "Ray Serve controller"),
    (r"litellm", "LiteLLM proxy"),
    (r"postgres|prisma|query-engine", "database"),
    (r"gcs_server|raylet", "Ray core (gcs, raylet)"),
    (r"ingress_cost\S* --replica", "replica of a fake engine"),
    (r"ingress_cost\S* .*--two-processes", "ingress on a fake engine"),
    (r"pith serve|serve\.cli", "pith serve (this command)"),
    (r"ray", "Ray helpers (agents, monitors, idle workers)"),
)

Processes = Callable[[], Iterable[psutil.Process]]


def tree(pid: int) -> list[psutil.Process]:
    """A process and all that it started, directly or not. Raises `psutil.NoSuchProcess`."""
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def marked(variable: str, value: str, root: int) -> list[psutil.Process]:
    """The tree of `root`, and of every process whose environment has the variable.

    Neither finds all of them: daemons leave the tree, and a process that gives itself a title (vLLM's engine) writes
    it over its environment.
    """
    found = {process.pid: process for process in family(root)}
    for process in psutil.process_iter():
        try:
            if process.pid not in found and process.environ().get(variable) == value:
                found |= {relative.pid: relative for relative in family(process.pid)}
        except psutil.Error:
            continue
    return [process for pid, process in found.items() if pid != os.getpid()]


def family(pid: int) -> list[psutil.Process]:
    """As `tree`; empty for a process that is gone."""
    try:
        return tree(pid)
    except psutil.NoSuchProcess:
        return []


def role_of(process: psutil.Process) -> str:
    """Raises `psutil.Error` for a process that is gone."""
    command = f"{process.name()} {' '.join(process.cmdline())}"
    return next((role for pattern, role in ROLES if re.search(pattern, command)), "other")


@dataclass(frozen=True, slots=True)
class Held:
    """What one process holds. Memory is the proportional set: shared pages are split among those who share.

    `open_files` are those that are no TCP sockets. `connections` are the TCP sockets but for those to this program,
    which keeps as many as it once needed at a time.
    """

    pid: int
    role: str
    memory_mib: float
    open_files: int
    connections: int = 0
    threads: int = 0


def held(processes: Iterable[psutil.Process]) -> list[Held]:
    own = {one.laddr.port for one in psutil.Process().net_connections("tcp")}
    found = []
    for process in processes:
        try:
            memory = process.memory_full_info().pss / MIB
            sockets = process.net_connections("tcp")
            others = sum(1 for one in sockets if not one.raddr or one.raddr.port not in own)
            found.append(
                Held(
                    process.pid,
                    role_of(process),
                    memory,
                    process.num_fds() - len(sockets),
                    others,
                    process.num_threads(),
                )
            )
        except psutil.Error:
            continue
    return found


# Each process with its role and the CPU seconds that it has used since it began.
Seconds = dict[psutil.Process, tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Cpu:
    """User and system time of the server's processes, and of this one, which shares the machine with them."""

    processes: Processes

    def seconds(self) -> Seconds:
        found: Seconds = {}
        for process in self.processes():
            try:
                times = process.cpu_times()
                found[process] = role_of(process), times.user + times.system
            except psutil.Error:
                continue
        own = os.times()
        return {**found, psutil.Process(): (GENERATOR, own.user + own.system)}

    def between(self, before: Seconds, after: Seconds) -> dict[str, float]:
        """By role, as it is after: a worker of Ray's changes its title when it becomes a replica.

        What a process used that ended in between is not seen.
        """
        used: dict[str, float] = {}
        for process, (role, seconds) in after.items():
            _, earlier = before.get(process, (role, 0.0))
            used[role] = used.get(role, 0.0) + seconds - earlier
        return used
