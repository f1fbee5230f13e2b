"""The processes of one model's engine, wherever Ray has started them, and the memory that they share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.integration.running import wait_for
from tests.pretend_gpu.plugin import VARIABLE

SHARED = "/dev/shm/"
# How Python calls what vLLM's queues are in. What CPUs have instead of NVLink has names with `cpushm` (vLLM's
# `csrc/cpu/shm.cpp`): it stays when a worker is killed, and GPUs have none.
OF_QUEUES = "psm_"


@dataclass
class Found:
    """Replicas of Ray Serve, cores of vLLM, Ray's worker actors of vLLM's executor; `all` of them."""

    replicas: list[psutil.Process] = field(default_factory=list)
    cores: list[psutil.Process] = field(default_factory=list)
    workers: list[psutil.Process] = field(default_factory=list)

    @property
    def all(self) -> list[psutil.Process]:
        return [*self.replicas, *self.cores, *self.workers]


def engine_processes(of: psutil.Process, model: str) -> Found:
    """Among the descendants of `of` those with the model's environment, which is how it is told from others'."""
    found = Found()
    kinds = {"ServeReplica": found.replicas, "EngineCore": found.cores, "RayWorkerProc": found.workers}
    for process in of.children(recursive=True):
        # One may end meanwhile.
        with suppress(psutil.Error):
            name = process.name()
            kind = next((kind for kind in kinds if kind in name), None)
            if kind is not None and process.environ().get(VARIABLE) == model:
                kinds[kind].append(process)
    return found


def shared_by(processes: list[psutil.Process]) -> set[str]:
    """The names in `/dev/shm` of what these have mapped: vLLM's queues, and no object of Ray's."""
    return {name for process in processes for name in _mapped(process)}


def gone(processes: list[psutil.Process]) -> None:
    """Wait until none of them is there."""
    wait_for(
        lambda: not [process for process in processes if process.is_running()],
        what="none of these is left",
    )


def nothing_is_left_of(shared: set[str]) -> None:
    """Wait until nobody finds it any more."""
    wait_for(lambda: not shared & {*os.listdir(SHARED)}, what="what was shared is gone")


def _mapped(process: psutil.Process) -> Iterator[str]:
    with suppress(OSError):
        for line in Path(f"/proc/{process.pid}/maps").read_text().splitlines():
            name = line.partition(SHARED)[2].removesuffix(" (deleted)")
            if name.startswith(OF_QUEUES):
                yield name
