"""Ray nodes on one machine, each with an address of its own, by plain `ray start`, as an operator starts a cluster."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType

import psutil

from tests.integration.running import ROOT, free_port, wait_for

RAY = Path(sys.executable).with_name("ray")
START_S = 60
STOP_S = 20
CPUS = 8
# Not 127.0.0.1, in whose place Ray takes the machine's own address.
HEAD, OTHER, THIRD = "127.0.0.2", "127.0.0.3", "127.0.0.4"


class RayNodes:
    """A cluster whose first node is its head. `kill` and `start` take a node away and bring it back. `programs`: by
    address, the folder of `ray` of an environment with an installed pith; the others have this checkout."""

    def __init__(
        self,
        folder: Path,
        programs: Mapping[str, Path],
        also: Mapping[str, str],
        dashboard: int | None,
    ) -> None:
        self._folder = folder
        self._programs = programs
        self._also = also
        self._dashboard = dashboard
        self._port = free_port()
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._token = secrets.token_hex(32)

    @property
    def address(self) -> str:
        return f"{HEAD}:{self._port}"

    @property
    def ips(self) -> list[str]:
        """Of the nodes that run."""
        return list(self._started)

    @property
    def environment(self) -> Mapping[str, str]:
        """With which Ray's own commands and pith reach it."""
        ours = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self._token, "RAY_USAGE_STATS_ENABLED": "0"}
        code = {} if self._programs else {"PYTHONPATH": str(ROOT)}
        return {**os.environ, **ours, **code, "RAY_worker_niceness": "0", **self._also}

    def start(self, ip: str) -> None:
        """Returns when the node says that it runs."""
        head = [
            "--head",
            f"--port={self._port}",
            f"--include-dashboard={str(self._dashboard is not None).lower()}",
            *([f"--dashboard-port={self._dashboard}"] if self._dashboard is not None else []),
            f"--temp-dir={self._folder / 'ray'}",
        ]
        options = head if ip == HEAD else [f"--address={self.address}"]
        own = [f"--node-ip-address={ip}", f"--num-cpus={CPUS}", "--object-store-memory=100000000"]
        ray = self._programs.get(ip, RAY.parent) / RAY.name
        log = self._folder / f"{ip}.log"
        with log.open("wb") as out:
            self._started[ip] = started = subprocess.Popen(
                [ray, "start", *options, *own, "--disable-usage-stats", "--block"],
                cwd=self._folder if self._programs else ROOT,
                env=self.environment,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

        def is_up() -> bool:
            assert started.poll() is None, log.read_text()
            return "Ray runtime started" in log.read_text()

        wait_for(is_up, timeout_s=START_S, what=f"{ip} runs")

    def processes(self, ip: str) -> list[psutil.Process]:
        """All of a node's, its workers and their children included."""
        parent = psutil.Process(self._started[ip].pid)
        return [parent, *parent.children(recursive=True)]

    def listens(self, ip: str, port: int) -> bool:
        """Whether something there does."""
        with suppress(OSError), socket.create_connection((ip, port), 1):
            return True
        return False

    def kill(self, ip: str) -> None:
        """SIGKILL for all processes of the node, as when its machine loses its power."""
        _kill(self.processes(ip))
        self._started.pop(ip).wait(STOP_S)

    def close(self) -> None:
        for ip in reversed(list(self._started)):
            self.kill(ip)


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=STOP_S)


@contextmanager
def ray_nodes(
    *ips: str,
    programs: Mapping[str, Path] = MappingProxyType({}),
    also: Mapping[str, str] = MappingProxyType({}),
    dashboard: int | None = None,
) -> Iterator[RayNodes]:
    """Nodes at these addresses of loopback, `HEAD` first, with `also` in their environment, and with Ray's dashboard
    where a port is given for it."""
    with tempfile.TemporaryDirectory(prefix="pith-nodes-", dir="/tmp") as folder:
        nodes = RayNodes(Path(folder), programs, also, dashboard)
        try:
            for ip in ips:
                nodes.start(ip)
            yield nodes
        finally:
            nodes.close()
