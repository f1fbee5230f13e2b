"""Sends requests at a fixed rate for long enough to see growth: memory and open files of every process, and loop lag.

    python -m benchmarks.soak --requests 100000 --rate 50 [--url … --pid …] [--config configs/tiny.yaml]

Without --pid it starts `pith serve` with a ledger of its own. Half of the requests are streams. `/health` is probed all
the while: it does nothing, so what it takes is how long the server's event loop is held up. The exit status is 1 where
memory or files grew from the second quarter of the run to the last (the first is for caches to fill), or where a
probe took longer than --max-lag-ms. Any failed request ends it without a report.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

import aiohttp
import uvloop

from benchmarks.load import machine, plots
from benchmarks.load.arguments import add_server, count, positive
from benchmarks.load.bars import bars
from benchmarks.load.exchange import Failed, chat
from benchmarks.load.loop import Open, Target, Window, measure
from benchmarks.load.machine import Facts
from benchmarks.load.processes import Held, Processes, held
from benchmarks.load.report import RUN_HEAD, Report, no_report_on_failure, run_cells, spans, table
from benchmarks.load.sample import Run
from benchmarks.load.server import server_under_test

MIB_ALLOWED, SHARE_ALLOWED, FILES_ALLOWED = 8.0, 0.02, 4.0
# Kept connections are as many as were ever needed at once, which a rare hiccup raises; a leak has hundreds.
SOCKETS_ALLOWED = 64.0
PROBE_S = 0.25
LOOKS = 200
LEAST_LOOKS = 8
TOKENS = 4
QUARTER = 4


@dataclass(frozen=True, slots=True)
class Look:
    """What every process held at one moment."""

    at_s: float
    processes: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class Probe:
    """One `/health`, beside how late this program's own loop was just before it, which is no fault of the server's."""

    at_s: float
    lag_ms: float
    own_lag_ms: float


@dataclass(slots=True)
class Soak:
    """Everything that was seen."""

    looks: list[Look] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    runs: dict[str, Run] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Growth:
    """Of one role's processes together, from the second quarter of the run to the last, and what is let pass."""

    role: str
    what: str
    before: float
    after: float
    allowed: float

    @property
    def grew(self) -> bool:
        return self.after - self.before > self.allowed


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )  # fmt: skip
    add_server(parser)
    parser.add_argument("--config", type=Path, default=Path("configs/tiny.yaml"), help="without --pid")
    parser.add_argument("--model", default="pith-mini")
    parser.add_argument("--requests", type=count, default=3000)
    parser.add_argument("--rate", type=positive, default=20.0, help="requests a second")
    parser.add_argument(
        "--warm-up", type=positive, default=5.0, help="seconds at that rate before the first look"
    )
    parser.add_argument("--max-lag-ms", type=positive, default=1000.0, help="of /health")
    parser.add_argument("--out", type=Path, default=Path("var/bench-soak"), help="folder for the report")
    return parser.parse_args(words)


async def look(soak: Soak, processes: Processes, every_s: float) -> None:
    """Read every process now and then, in a thread: the kernel takes milliseconds to add up shared pages."""
    began = time.perf_counter()
    while True:
        found = await asyncio.to_thread(lambda: tuple(held(processes())))
        soak.looks.append(Look(time.perf_counter() - began, found))
        await asyncio.sleep(every_s)


async def probe(soak: Soak, target: Target) -> None:
    began = time.perf_counter()
    async with target.session() as session:
        while True:
            slept = time.perf_counter()
            await asyncio.sleep(PROBE_S)
            asked = time.perf_counter()
            try:
                async with session.get("/health") as response:
                    response.raise_for_status()
                    await response.read()
            except (aiohttp.ClientError, TimeoutError) as error:
                raise Failed(f"GET /health: {error!r}") from error
            lag_ms = 1000 * (time.perf_counter() - asked)
            soak.probes.append(Probe(asked - began, lag_ms, 1000 * (asked - slept - PROBE_S)))


async def soaked(
    options: argparse.Namespace, target: Target, processes: Processes, advance: Callable[[object], None]
) -> Soak:
    """Raises `Failed`."""
    soak, seconds = Soak(), options.requests / options.rate
    window, pattern = Window(options.warm_up, seconds), Open(options.rate / 2)

    async def load(name: str, stream: bool) -> None:
        call = chat(options.model, tokens=TOKENS, stream=stream)
        soak.runs[name] = await measure(target, call, pattern, window, on_done=advance)

    async def watch() -> None:
        await asyncio.sleep(options.warm_up)
        await asyncio.gather(look(soak, processes, seconds / LOOKS), probe(soak, target))

    watcher = asyncio.create_task(watch())
    loads = asyncio.gather(load("JSON", False), load("SSE", True))
    try:
        await asyncio.wait((watcher, loads), return_when=asyncio.FIRST_COMPLETED)
        if watcher.done():
            watcher.result()
        await loads
    finally:
        watcher.cancel()
        loads.cancel()
        await asyncio.gather(watcher, loads, return_exceptions=True)
    return soak


def quarter(soak: Soak, number: int) -> list[Look]:
    size = len(soak.looks) / QUARTER
    return soak.looks[int(number * size) : int((number + 1) * size)]


def total(role: str, looks: Sequence[Look], of: Callable[[Held], float]) -> float:
    """The median over the looks of what all processes of a role held together."""
    return statistics.median(sum(of(p) for p in one.processes if p.role == role) for one in looks)


def growths(soak: Soak) -> list[Growth]:
    """Raises `Failed` for a run too short to tell."""
    early, late = quarter(soak, 1), quarter(soak, QUARTER - 1)
    if len(soak.looks) < LEAST_LOOKS:
        raise Failed(
            f"{len(soak.looks)} looks at the processes are too few to see growth; ask for more requests"
        )
    found = []
    for role in sorted({process.role for one in soak.looks for process in one.processes}):
        before, after = (total(role, looks, lambda p: p.memory_mib) for looks in (early, late))
        found.append(Growth(role, "memory, MiB", before, after, max(MIB_ALLOWED, SHARE_ALLOWED * before)))
        before, after = (total(role, looks, lambda p: p.open_files) for looks in (early, late))
        found.append(Growth(role, "open files", before, after, FILES_ALLOWED))
        before, after = (total(role, looks, lambda p: p.connections) for looks in (early, late))
        found.append(Growth(role, "TCP sockets", before, after, SOCKETS_ALLOWED))
    return found


def complaints(soak: Soak, max_lag_ms: float) -> list[str]:
    """What makes the run a failure."""
    found = [
        f"{g.role}: {g.what} grew from {g.before:.1f} to {g.after:.1f}, more than {g.allowed:.1f}"
        for g in growths(soak)
        if g.grew
    ]
    worst = max(soak.probes, key=lambda one: one.lag_ms)
    if worst.lag_ms > max_lag_ms:
        found.append(f"/health took {worst.lag_ms:.0f} ms at {worst.at_s:.0f} s, more than {max_lag_ms:g}")
    return found


def report(options: argparse.Namespace, facts: Facts, soak: Soak) -> Report:
    rows = [
        [
            g.role,
            g.what,
            f"{g.before:.1f}",
            f"{g.after:.1f}",
            f"{g.after - g.before:+.1f}",
            f"{g.allowed:.1f}",
        ]
        for g in growths(soak)
    ]
    lag = spans([one.lag_ms for one in soak.probes])
    own = spans([one.own_lag_ms for one in soak.probes])
    lines = [
        f"{options.requests:,} requests at {options.rate:g} a second after {options.warm_up:g} s of warm-up.", "",
        *table(["kind", *RUN_HEAD], [[name, *run_cells([run])] for name, run in soak.runs.items()]), "",
        f"/health p50 / p99 {lag} ms ({len(soak.probes)} probes); this program's own lag {own} ms.", "",
        *table(["processes", "what", "second quarter", "last quarter", "growth", "allowed"], rows), "",
        *(f"**{complaint}**" for complaint in complaints(soak, options.max_lag_ms) or ["No growth beyond noise."]),
    ]  # fmt: skip
    return Report("soak", "Soak", facts, lines, asdict(soak), {"soak": picture(options, soak)})


def picture(options: argparse.Namespace, soak: Soak) -> plots.Picture:
    wrong = complaints(soak, options.max_lag_ms)
    said = wrong[0] if wrong else "no growth in memory, files or sockets"
    return plots.Picture(f"{options.requests:,} requests: {said}", panels(soak))


def panels(soak: Soak) -> list[plots.Panel]:
    roles = sorted({process.role for one in soak.looks for process in one.processes})

    def lines(of: Callable[[Held], float]) -> dict[str, list[tuple[float, float]]]:
        return {role: [(one.at_s, total(role, [one], of)) for one in soak.looks] for role in roles}

    lag = {"/health": [(one.at_s, one.lag_ms) for one in soak.probes],
           "this program": [(one.at_s, one.own_lag_ms) for one in soak.probes]}  # fmt: skip
    return [
        plots.Panel("memory", "s", "MiB", lines(lambda p: p.memory_mib), log_y=True, continuous_x=True),
        plots.Panel("open files", "s", "files", lines(lambda p: p.open_files), continuous_x=True),
        plots.Panel("TCP sockets", "s", "sockets", lines(lambda p: p.connections), continuous_x=True),
        plots.Panel("event loop", "s", "ms", lag, continuous_x=True),
        *plots.times({name: [run] for name, run in soak.runs.items()}),
    ]


async def run(options: argparse.Namespace) -> Soak:
    with ExitStack() as until:
        target, processes = await server_under_test(options, until)
        requests = int(options.requests + options.rate * options.warm_up)
        with bars() as progress:
            task = progress.add_task("requests", total=requests)
            return await soaked(options, target, processes, lambda sample: progress.advance(task))


def main() -> None:
    options, facts = arguments(), machine.facts("benchmarks.soak")
    with no_report_on_failure():
        soak = uvloop.run(run(options))
        made = report(options, facts, soak)
    made.publish(options.out)
    if complaints(soak, options.max_lag_ms):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
