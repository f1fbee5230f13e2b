"""Compares what a chat request costs the ingress process in two source trees, in one run that alternates them.

python -m tests.ingress_cost --before ../other-checkout
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
        """Of all its threads since its start, user and system."""
        return sum(
            int(path.read_text().split()[0]) / 1e9
            for path in Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        )

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(STOP_S)


def start(tree: Path, tokens_per_chunk: int, prefix: tuple[str, ...] = ()) -> Server:
    """`prefix` is a command that runs the server, such as a profiler."""
    process = subprocess.Popen(
        [*prefix, sys.executable, str(HERE / "server.py"), "--tokens-per-chunk", str(tokens_per_chunk)],
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
    """One slice: CPU milliseconds a request in the server, requests a second, the median latency."""

    cpu_ms: float
    per_s: float
    p50_ms: float


async def sample(server: Server, kind: Kind, requests: int, clients: int) -> Sample:
    before = server.cpu_s()
    seen = await run_slice(kind, server.port, server.key, requests=requests, clients=clients)
    cpu_ms = (server.cpu_s() - before) * 1000 / requests
    return Sample(cpu_ms, requests / seen.wall_s, median(seen.latencies_s) * 1000)


async def compare(trees: list[Path], kind: Kind, given: argparse.Namespace) -> None:
    with ExitStack() as running:
        servers = []
        for tree in trees:
            server = start(tree, given.tokens_per_chunk)
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
        cpu, per_s, p50 = (
            median(getattr(s, name) for s in samples) for name in ("cpu_ms", "per_s", "p50_ms")
        )
        print(f"{kind:5} {tree.name:12} {cpu:7.3f} CPU ms/request {per_s:8.1f} requests/s {p50:7.2f} ms p50")
    for name in ("cpu_ms", "per_s") if len(taken) == 2 else ():
        ratios = [getattr(b, name) / getattr(a, name) for a, b in zip(*taken, strict=True)]
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
    given = parser.parse_args()
    trees = [tree.resolve() for tree in (given.before, given.after) if tree is not None]
    kinds: dict[str, Kind] = {"json": "json", "sse": "sse"}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for kind in given.kinds.split(","):
            runner.run(compare(trees, kinds[kind], given))


if __name__ == "__main__":
    main()
