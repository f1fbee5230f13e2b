"""Compares what a chat request costs the ingress process in two source trees, in one run that alternates them.

python -m tests.ingress_cost --before ../other-checkout

With --two-processes the engine is behind a replica's port in a process of its own, whose cost is counted as well.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import uvloop

from tests.ingress_cost.load import Kind, run_slice

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
STOP_S = 10.0


@dataclass(frozen=True)
class Server:
    """A running ingress of one tree."""

    process: subprocess.Popen[str]
    port: int
    key: str

    def cpu_s(self) -> float:
        """Of its process since its start, user and system, all threads; and of the replica's."""
        return sum(map(_cpu_s, (self.process.pid, *_children(self.process.pid))))

    def replica_cpu_s(self) -> float:
        """Of the process behind the replica's port, if there is one."""
        return sum(map(_cpu_s, _children(self.process.pid)))

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(STOP_S)


def _cpu_s(pid: int) -> float:
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(path.read_text().split()[0]) / 1e9 for path in threads)


def _children(pid: int) -> list[int]:
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in threads for child in path.read_text().split()]


def start(tree: Path, words: list[str]) -> Server:
    process = subprocess.Popen(
        [sys.executable, str(HERE / "server.py"), *words],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    told = json.loads(process.stdout.readline())
    return Server(process, told["port"], told["key"])


@dataclass(frozen=True)
class Sample:
    """One slice: CPU milliseconds a request in the server, and of them in the replica, requests a second, the median
    latency."""

    cpu_ms: float
    replica_ms: float
    per_s: float
    p50_ms: float


async def sample(server: Server, kind: Kind, requests: int, clients: int) -> Sample:
    before, replica_before = server.cpu_s(), server.replica_cpu_s()
    seen = await run_slice(kind, server.port, server.key, requests=requests, clients=clients)
    cpu_ms = (server.cpu_s() - before) * 1000 / requests
    replica_ms = (server.replica_cpu_s() - replica_before) * 1000 / requests
    return Sample(cpu_ms, replica_ms, requests / seen.wall_s, median(seen.latencies_s) * 1000)


async def compare(trees: list[Path], kind: Kind, given: argparse.Namespace) -> None:
    words = ["--tokens-per-chunk", str(given.tokens_per_chunk)]
    words += ["--two-processes"] if given.two_processes else []
    with ExitStack() as running:
        servers = []
        for tree in trees:
            server = start(tree, words)
            running.callback(server.stop)
            servers.append(server)
            await sample(server, kind, given.requests, given.clients)
        taken: list[list[Sample]] = [[] for _ in servers]
        for turn in range(given.rounds):
            order = range(len(servers)) if turn % 2 == 0 else reversed(range(len(servers)))
            for index in order:
                taken[index].append(await sample(servers[index], kind, given.requests, given.clients))
    report(trees, kind, taken)


def report(trees: list[Path], kind: Kind, taken: list[list[Sample]]) -> None:
    for tree, samples in zip(trees, taken, strict=True):
        names = ("cpu_ms", "replica_ms", "per_s", "p50_ms")
        cpu, replica, per_s, p50 = (median(getattr(s, name) for s in samples) for name in names)
        ms = f"{cpu:7.3f} CPU ms/request" + (f", {replica:.3f} in the replica" if replica else "")
        print(f"{kind:5} {tree.name:12} {ms} {per_s:8.1f} requests/s {p50:7.2f} ms p50")
    for name in ("cpu_ms", "replica_ms", "per_s") if len(taken) == 2 else ():
        pairs = [(getattr(a, name), getattr(b, name)) for a, b in zip(*taken, strict=True)]
        ratios = [after / before for before, after in pairs if before]
        if not ratios:
            continue
        low, _, high = quantiles(ratios, n=4)
        print(f"{kind:5} ratio {name}: {median(ratios):.3f} (quartiles {low:.3f} to {high:.3f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--before", type=Path, help="a second checkout to compare with; without it, no comparison"
    )
    parser.add_argument("--after", type=Path, default=ROOT)
    parser.add_argument("--kinds", default="json,sse")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--requests", type=int, default=400, help="in a slice")
    parser.add_argument("--rounds", type=int, default=8, help="slices of each tree")
    parser.add_argument("--tokens-per-chunk", type=int, default=1)
    parser.add_argument("--two-processes", action="store_true", help="the engine behind a replica's port")
    given = parser.parse_args()
    trees = [tree.resolve() for tree in (given.before, given.after) if tree is not None]
    kinds: dict[str, Kind] = {"json": "json", "sse": "sse"}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for kind in given.kinds.split(","):
            runner.run(compare(trees, kinds[kind], given))


if __name__ == "__main__":
    main()
