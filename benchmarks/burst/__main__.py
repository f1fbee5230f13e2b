"""Sends so many requests at once and asks `/health` all the while: `python -m benchmarks.burst --requests 1000`.

    python -m benchmarks.burst [--kinds json,sse,long] [--url … --key … --pid …] [--config configs/tiny.yaml]

Without --pid it starts `pith serve` with a ledger of its own. Every request has a connection of its own; all are
opened before the first is sent. The exit status is 1, after the report, where a connection was reset or refused,
where a request got neither a whole answer nor 402, nor 429 or 503 with `Retry-After`, and where a `/health` failed or
took longer than --max-health-ms.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import uvloop
from rich.progress import Progress, TaskID

from benchmarks.burst.kinds import KINDS, call_of
from benchmarks.burst.sending import Burst, burst, complaints
from benchmarks.load import machine, plots
from benchmarks.load.arguments import add_server, count, positive
from benchmarks.load.bars import bars
from benchmarks.load.loop import Target
from benchmarks.load.processes import Held, Processes, held
from benchmarks.load.report import Report, no_report_on_failure, spans, table
from benchmarks.load.server import server_under_test

LOOK_S = 0.5


@dataclass(slots=True)
class Bursts:
    """All of them, and what the server's processes held, read twice a second."""

    bursts: list[Burst] = field(default_factory=list)
    looks: list[list[Held]] = field(default_factory=list)


def kinds(text: str) -> tuple[str, ...]:
    found = tuple(text.split(","))
    if unknown := [kind for kind in found if kind not in KINDS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(KINDS)}")
    return found


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.burst", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )  # fmt: skip
    add_server(parser)
    parser.add_argument("--config", type=Path, default=Path("configs/tiny.yaml"), help="without --pid")
    parser.add_argument("--model", default="pith-mini")
    parser.add_argument("--requests", type=count, default=1000, help="in each burst")
    parser.add_argument(
        "--kinds", type=kinds, default=KINDS, help="bursts, one after another; default: json,sse,long"
    )
    parser.add_argument("--tokens", type=count, default=16, help="of each completion")
    parser.add_argument(
        "--timeout", type=positive, default=300.0, help="seconds until a request has no answer"
    )
    parser.add_argument("--max-health-ms", type=positive, default=1000.0)
    parser.add_argument("--out", type=Path, default=Path("var/bench-burst"), help="folder for the report")
    return parser.parse_args(words)


async def look(seen: Bursts, processes: Processes) -> None:
    while True:
        seen.looks.append(await asyncio.to_thread(lambda: held(processes())))
        await asyncio.sleep(LOOK_S)


def advance(progress: Progress, task: TaskID, answer: object) -> None:
    progress.advance(task)


async def measured(options: argparse.Namespace, target: Target, processes: Processes) -> Bursts:
    """Raises `Failed` where the server does not answer one request alone."""
    seen = Bursts()
    looker = asyncio.create_task(look(seen, processes))
    try:
        with bars() as progress:
            for kind in options.kinds:
                call = await call_of(
                    kind, target, options.model, tokens=options.tokens, requests=options.requests
                )
                done = partial(advance, progress, progress.add_task(kind, total=options.requests))
                seen.bursts.append(
                    await burst(
                        kind, target, call, requests=options.requests, timeout_s=options.timeout, on_done=done
                    )
                )
    finally:
        looker.cancel()
        await asyncio.gather(looker, return_exceptions=True)
    return seen


def report(options: argparse.Namespace, facts: machine.Facts, seen: Bursts) -> Report:
    rows = [
        [
            one.kind,
            f"{len(one.answers):,}",
            "; ".join(f"{number:,} of {kind}" for kind, number in one.counts().items()),
            f"{one.connecting_s:.2f}",
            f"{one.seconds:.1f}",
            spans(one.latencies_ms(status=200), 0),
            f"{max((answer.latency_ms for answer in one.answers), default=0):,.0f}",
            f"{spans([probe.took_ms for probe in one.probes])} / {one.longest_health_ms:.1f}",
            f"{len(one.probes)}",
        ]
        for one in seen.bursts
    ]
    head = (
        "burst", "requests", "answers", "connecting s", "to the last answer s", "latency of a 200 p50 / p99 ms",
        "longest ms", "/health p50 / p99 / longest ms", "probes",
    )  # fmt: skip
    late = spans([probe.late_ms for one in seen.bursts for probe in one.probes])
    wrong = complaints(seen.bursts, max_health_ms=options.max_health_ms)
    lines = [
        f"{options.requests:,} requests at once, {options.tokens} tokens each.", "",
        *table(head, rows), "",
        f"This program was late with a probe by p50 / p99 {late} ms.", "",
        *table(["processes", "most memory, MiB", "most open files"], most_held(seen.looks)), "",
        *(f"**{one}**" for one in wrong or ["Every request was answered or properly refused."]),
    ]  # fmt: skip
    body = {"bursts": [asdict(one) for one in seen.bursts], "looks": seen.looks}
    title = f"Bursts of {options.requests:,} requests"
    return Report("burst", title, facts, lines, body, {"burst": picture(options.requests, seen)})


def most_held(looks: Sequence[Sequence[Held]]) -> list[list[str]]:
    """By role: the most that all its processes held together."""
    roles = sorted({process.role for one in looks for process in one})
    rows = []
    for role in roles:
        mine = [[process for process in one if process.role == role] for one in looks]
        memory = max(sum(process.memory_mib for process in one) for one in mine)
        files = max(sum(process.open_files for process in one) for one in mine)
        rows.append([role, f"{memory:.0f}", f"{files:,}"])
    return rows


def picture(requests: int, seen: Bursts) -> plots.Picture:
    health = {one.kind: [(probe.at_s, probe.took_ms) for probe in one.probes] for one in seen.bursts}
    panels = [
        plots.distribution("answers", "ms", {one.kind: one.latencies_ms(status=200) for one in seen.bursts}),
        plots.Panel("/health", "s", "ms", health, continuous_x=True),
    ]
    longest = max(one.longest_health_ms for one in seen.bursts)
    return plots.Picture(
        f"While {requests:,} requests at once were answered, /health took {longest:,.0f} ms at the most",
        panels,
    )


async def run(options: argparse.Namespace) -> Bursts:
    with ExitStack() as until:
        return await measured(options, *await server_under_test(options, until))


def main() -> None:
    options, facts = arguments(), machine.facts("benchmarks.burst")
    with no_report_on_failure():
        seen = uvloop.run(run(options))
    report(options, facts, seen).publish(options.out)
    if complaints(seen.bursts, max_health_ms=options.max_health_ms):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
