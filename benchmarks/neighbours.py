"""Waiting times of small compressions while a large one runs: the same burst on a quiet server and beside it, in turns.

    python -m benchmarks.neighbours [--url …] [--small-tokens 2000] [--requests 40] [--large-bytes 2000000] [--rounds 7]

Each round sends so many small requests at once; then a large one, and as soon as it has begun the same small ones.
Times are as a client sees them. A round in which the large one had ended before the last small one is not counted,
but said.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import aiohttp
import orjson
import uvloop

from benchmarks.compress import Scenario, call, characters_per_token
from benchmarks.load import machine
from benchmarks.load.arguments import add_server, count, positive
from benchmarks.load.bars import bars
from benchmarks.load.exchange import Call, Clock, Failed, exchange
from benchmarks.load.loop import Target
from benchmarks.load.report import Report, no_report_on_failure, spans, table
from benchmarks.load.sample import percentile
from benchmarks.load.text import QUERY, made_up

RATIO = 0.25


@dataclass(frozen=True, slots=True)
class Round:
    """Latencies in ms of the same requests. `overlapped`: the large one outlasted every small one."""

    quiet_ms: list[float]
    beside_ms: list[float]
    large_ms: float
    overlapped: bool


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.neighbours",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_server(parser)
    parser.add_argument("--model", help="compression model; absent: the default")
    parser.add_argument("--small-tokens", type=count, default=2000)
    parser.add_argument("--requests", type=count, default=40, help="small ones at once")
    parser.add_argument("--large-bytes", type=count, default=2_000_000)
    parser.add_argument("--head-start", type=positive, default=0.3, help="seconds of the large one alone")
    parser.add_argument("--rounds", type=count, default=7)
    parser.add_argument(
        "--out", type=Path, default=Path("var/bench-neighbours"), help="folder for the report"
    )
    return parser.parse_args(words)


async def burst(session: aiohttp.ClientSession, small: Call, requests: int) -> list[float]:
    """So many at once. Raises `Failed`."""
    clock = Clock(time.perf_counter())
    bodies = [small.bodies[number % len(small.bodies)] for number in range(requests)]
    samples = await asyncio.gather(
        *(exchange(session, small, body, clock=clock, due_s=0.0) for body in bodies)
    )
    return [sample.latency_ms for sample in samples]


async def one_round(
    session: aiohttp.ClientSession, small: Call, large: Call, options: argparse.Namespace
) -> Round:
    """Raises `Failed`."""
    quiet_ms = await burst(session, small, options.requests)
    clock = Clock(time.perf_counter())
    running = asyncio.create_task(exchange(session, large, large.bodies[0], clock=clock, due_s=0.0))
    try:
        await asyncio.wait((running,), timeout=options.head_start)
        beside_ms = await burst(session, small, options.requests)
        overlapped = not running.done()
        return Round(quiet_ms, beside_ms, (await running).latency_ms, overlapped)
    finally:
        running.cancel()


async def measured(options: argparse.Namespace) -> list[Round]:
    """The rounds, after one burst that is thrown away. Raises `Failed`."""
    target, text = Target(options.url, options.key), made_up(2 * options.large_bytes)
    per_token = await characters_per_token(target, options.model, text)
    scenario = Scenario(options.model, options.small_tokens, RATIO, options.requests)
    small = call(scenario, text, int(options.small_tokens * per_token))
    named = {"model": options.model} if options.model else {}
    body = {
        **named,
        "query": QUERY,
        "input": text[: options.large_bytes],
        "compression": {"target_ratio": RATIO},
    }
    large = Call(small.path, (orjson.dumps(body),), False, small.figures_of)
    async with target.session() as session:
        await burst(session, small, options.requests)
        with bars() as progress:
            task = progress.add_task("rounds", total=options.rounds)
            rounds = []
            for _ in range(options.rounds):
                rounds.append(await one_round(session, small, large, options))
                progress.advance(task)
    return rounds


def report(options: argparse.Namespace, facts: machine.Facts, rounds: Sequence[Round]) -> Report:
    counted = [each for each in rounds if each.overlapped]
    if not counted:
        raise Failed("the large request ended before the small ones in every round: make it larger")
    quiet, beside = ([ms for each in counted for ms in side(each)] for side in (_quiet, _beside))
    ratios = [percentile(each.beside_ms, 99) / percentile(each.quiet_ms, 99) for each in counted]
    rows = [
        ["quiet", f"{len(quiet)}", spans(quiet), ""],
        ["beside a large one", f"{len(beside)}", spans(beside), f"{statistics.median(ratios):.2f}"],
    ]
    lines = [
        f"{options.requests} requests of {options.small_tokens:,} tokens at once, {len(counted)} rounds of "
        f"{len(rounds)}; the large one has {options.large_bytes:,} bytes and took "
        f"{statistics.median(each.large_ms for each in counted) / 1000:.1f} s.",
        "",
        *table(("server", "requests", "latency p50 / p99 ms", "p99 by quiet's, median of rounds"), rows),
    ]
    return Report(
        "neighbours", f"Small compressions while a large one runs on {options.url}", facts, lines,
        {"rounds": [asdict(each) for each in rounds]},
    )  # fmt: skip


def _quiet(each: Round) -> list[float]:
    return each.quiet_ms


def _beside(each: Round) -> list[float]:
    return each.beside_ms


def main() -> None:
    options, facts = arguments(), machine.facts("benchmarks.neighbours")
    with no_report_on_failure():
        rounds = uvloop.run(measured(options))
        found = report(options, facts, rounds)
    found.publish(options.out)


if __name__ == "__main__":
    main()
