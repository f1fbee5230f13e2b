"""Sends requests at a fixed rate for long enough to see growth: memory and open files of every process, and loop lag.

    python -m benchmarks.soak --requests 100000 --rate 50 [--url … --pid …] [--config configs/tiny.yaml]
    python -m benchmarks.soak --mixed --requests 20000 --rate 3

Without --pid it starts `pith serve` with a ledger of its own. Half of the requests are streams; with --mixed it is
everything that clients do (`benchmarks.load.mixed`). `/health` is probed all the while: it does nothing, so what it
takes is how long the server's event loop is held up. The exit status is 1 where memory or files grew from the second
quarter of the run to the last (the first is for caches to fill), or where a probe took longer than --max-lag-ms. Any
failed request ends it without a report; with --mixed failures are listed, the books are checked at the end, and either
makes the exit status 1.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

import aiohttp
import uvloop
import yaml

from benchmarks.load import machine, plots
from benchmarks.load.arguments import add_server, count, positive
from benchmarks.load.bars import bars
from benchmarks.load.books import come_to_rest, verified
from benchmarks.load.exchange import Failed, chat
from benchmarks.load.kept import LEDGER, Place, kept
from benchmarks.load.loop import Open, Target, Window, measure
from benchmarks.load.machine import Facts
from benchmarks.load.mixed import RETAIN_S, Ops, Outcome, drive, prepared
from benchmarks.load.processes import Held, Processes, held
from benchmarks.load.report import RUN_HEAD, Report, no_report_on_failure, run_cells, spans, table
from benchmarks.load.sample import Run
from benchmarks.load.server import Server, pith_server, server_under_test
from benchmarks.load.slope import PARTS, Slope, slope

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
    kept: dict[str, float] = field(default_factory=dict)


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
    outcome: Outcome | None = None
    # What the books' check complained of, and what it said.
    wrong: list[str] = field(default_factory=list)
    proof: str = ""


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
    parser.add_argument(
        "--mixed", action="store_true", help="everything that clients do, on a server of its own"
    )
    parser.add_argument("--seed", type=count, default=28, help="of what is sent with --mixed")
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


async def look(soak: Soak, processes: Processes, every_s: float, place: Place | None = None) -> None:
    """Read every process now and then, in a thread: the kernel takes milliseconds to add up shared pages."""
    began = time.perf_counter()
    while True:
        found = await asyncio.to_thread(lambda: tuple(held(processes())))
        left = await asyncio.to_thread(kept, place) if place else {}
        soak.looks.append(Look(time.perf_counter() - began, found, left))
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


Advance = Callable[[object], None]


def window_of(options: argparse.Namespace) -> Window:
    return Window(options.warm_up, options.requests / options.rate)


async def soaked(options: argparse.Namespace, target: Target, processes: Processes, advance: Advance) -> Soak:
    """Half JSON, half SSE. Raises `Failed`."""
    soak, pattern = Soak(), Open(options.rate / 2)

    async def load(name: str, stream: bool) -> None:
        call = chat(options.model, tokens=TOKENS, stream=stream)
        soak.runs[name] = await measure(target, call, pattern, window_of(options), on_done=advance)

    await watched(options, soak, target, processes, load("JSON", False), load("SSE", True))
    return soak


async def mixed(options: argparse.Namespace, server: Server, advance: Advance) -> Soak:
    """Everything that clients do, and what the books say of it."""
    place = place_of(server)
    ops = Ops(server.metrics_url.removesuffix("/metrics"), (place.state / "admin-key").read_text().strip())
    soak = Soak(outcome=(outcome := Outcome()))
    async with prepared(server.target, ops, options.seed) as (client, deliveries):
        load = drive(client, outcome, options.rate, window_of(options), advance)
        await watched(options, soak, server.target, server.processes, load, place=place)
        soak.wrong = await come_to_rest(place)
        wrong, soak.proof = await verified(server, client)
        soak.wrong += wrong
    outcome.delivered = len(deliveries.seen)
    outcome.sent_again = deliveries.seen.total() - outcome.delivered
    soak.runs = outcome.runs(window_of(options).seconds)
    return soak


def place_of(server: Server) -> Place:
    return Place(server.folder / "var", server.metrics_url)


async def watched(
    options: argparse.Namespace,
    soak: Soak,
    target: Target,
    processes: Processes,
    *all_loads: Awaitable[None],
    place: Place | None = None,
) -> None:
    """Looks and probes from the end of the warm-up until the loads have ended. Raises `Failed`."""
    every_s = window_of(options).seconds / LOOKS

    async def watch() -> None:
        await asyncio.sleep(options.warm_up)
        await asyncio.gather(look(soak, processes, every_s, place), probe(soak, target))

    watcher = asyncio.create_task(watch())
    loads = asyncio.gather(*all_loads)
    try:
        await asyncio.wait((watcher, loads), return_when=asyncio.FIRST_COMPLETED)
        if watcher.done():
            watcher.result()
        await loads
    finally:
        watcher.cancel()
        loads.cancel()
        await asyncio.gather(watcher, loads, return_exceptions=True)


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
        before, after = (total(role, looks, lambda p: p.threads) for looks in (early, late))
        found.append(Growth(role, "threads", before, after, FILES_ALLOWED))
    return found


# What the requests before leave behind is more of these by design.
GROWS = {"usage events", LEDGER, "disk: all else"}


def slopes(soak: Soak) -> list[tuple[str, Slope]]:
    """Of what the server keeps and what its processes hold, from the second quarter of the run on; none in a run that
    is too short for one."""
    looks = soak.looks[len(soak.looks) // QUARTER :]
    if len(looks) < 2 * PARTS:
        return []
    times = [one.at_s for one in looks]
    found = [(name, slope(times, [one.kept[name] for one in looks])) for name in looks[0].kept]
    for role in sorted({process.role for one in looks for process in one.processes}):
        for what, of in HELD.items():
            values = [total(role, [one], of) for one in looks]
            found.append((f"{role}: {what}", slope(times, values)))
    return found


HELD: dict[str, Callable[[Held], float]] = {
    "memory, MiB": lambda p: p.memory_mib,
    "open files": lambda p: p.open_files,
    "TCP sockets": lambda p: p.connections,
    "threads": lambda p: p.threads,
}


def complaints(soak: Soak, max_lag_ms: float) -> list[str]:
    """What makes the run a failure."""
    found = [
        f"{g.role}: {g.what} grew from {g.before:.1f} to {g.after:.1f}, more than {g.allowed:.1f}"
        for g in growths(soak)
        if g.grew
    ]
    hours = soak.looks[-1].at_s / 3600 * (QUARTER - 1) / QUARTER
    found += [
        f"{name} grew by {one} an hour"
        for name, one in slopes(soak)
        if name in soak.looks[0].kept and name not in GROWS and one.least * hours > FILES_ALLOWED
    ]
    found += soak.wrong
    if soak.outcome and soak.outcome.failures:
        found.append(f"{len(soak.outcome.failures)} requests failed: {soak.outcome.failures[0]}")
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
        *table(["what", "first", "last", "an hour, with the 95% interval of its slope"],
               [[name, f"{one.first:.2f}", f"{one.last:.2f}", str(one)] for name, one in slopes(soak)]), "",
        *mixed_lines(soak),
        *(f"**{complaint}**" for complaint in complaints(soak, options.max_lag_ms) or ["No growth beyond noise."]),
    ]  # fmt: skip
    return Report("soak", "Soak", facts, lines, asdict(soak), {"soak": picture(options, soak)})


def mixed_lines(soak: Soak) -> list[str]:
    if soak.outcome is None:
        return []
    statuses = ", ".join(f"{status}: {times:,}" for status, times in sorted(soak.outcome.statuses.items()))
    return [
        f"Replies by status: {statuses}. Webhooks: {soak.outcome.delivered} events came, "
        f"{soak.outcome.sent_again} of them again.", "",
        f"The month's proof: {soak.proof}", "",
        *(f"- {failure}" for failure in soak.outcome.failures[:20]), "",
    ]  # fmt: skip


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
    with ExitStack() as until, bars() as progress:
        task = progress.add_task("requests", total=int(options.requests + options.rate * options.warm_up))
        if options.mixed:
            server = own_server(options, until)
            await server.start()
            return await mixed(options, server, lambda done: progress.advance(task))
        target, processes = await server_under_test(options, until)
        return await soaked(options, target, processes, lambda sample: progress.advance(task))


def own_server(options: argparse.Namespace, until: ExitStack) -> Server:
    """One whose webhooks may go to this program, and which keeps nothing for longer than a small part of a run."""
    folder = Path(until.enter_context(tempfile.TemporaryDirectory(prefix="pith-soak-")))
    document = yaml.safe_load(options.config.read_text(encoding="utf-8"))
    document["webhooks"] = {"allowed_networks": ["127.0.0.0/8"]}
    document["responses"] = {"store_s": RETAIN_S}
    config = folder / "mixed.yaml"
    config.write_text(yaml.safe_dump(document), encoding="utf-8")
    server = pith_server(config, folder, options.model)
    until.callback(server.stop)
    return server


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
