"""Effect of one project's load on another's requests: `python -m benchmarks.fairness --streams 64`.

It starts `pith serve` with a ledger of its own. One project, without limits, keeps so many streams running; another
sends one request after the other, alone and beside them in turns. The figure is the second project's latency beside
the streams over its latency alone, round by round; and what the streams have beside it, of what they have alone.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import aiohttp
import uvloop

from benchmarks.load import machine, plots
from benchmarks.load.arguments import count
from benchmarks.load.bars import bars
from benchmarks.load.exchange import JSON_BODY, Call, Clock, Failed, chat, exchange
from benchmarks.load.loop import Target
from benchmarks.load.report import Report, no_report_on_failure, spans, table
from benchmarks.load.sample import percentile
from benchmarks.load.server import new_key, pith_server
from benchmarks.overhead.comparison import spread

UNTIL_STREAMING_S = 60.0
POLL_S = 0.02
# What the streams have alone is counted for so long.
ALONE_S = 5.0


@dataclass(slots=True)
class Round:
    """Latencies of one project's requests in milliseconds, alone and beside the other's streams."""

    quiet_ms: list[float] = field(default_factory=list)
    beside_ms: list[float] = field(default_factory=list)
    # Of the streams: tokens that came while the second project asked.
    stream_events: int = 0
    seconds: float = 0.0
    # Their events a second without it, before and after.
    streams_alone: float = 0.0

    @property
    def ratio(self) -> float:
        return statistics.median(self.beside_ms) / statistics.median(self.quiet_ms)

    @property
    def ratio_p99(self) -> float:
        return percentile(self.beside_ms, 99) / percentile(self.quiet_ms, 99)

    def used(self, tokens: int) -> float:
        """What both have together, with so many tokens in each of the second project's replies, of what the streams
        have alone."""
        both = self.stream_events + tokens * len(self.beside_ms)
        return both / self.seconds / self.streams_alone


@dataclass(slots=True)
class Streams:
    """The load of the first project: each stream that ends is followed by another."""

    call: Call
    events: int = 0
    started: int = 0

    async def keep_one(self, session: aiohttp.ClientSession, number: int) -> None:
        """Raises `Failed` for a stream that is refused."""
        body = self.call.bodies[number % len(self.call.bodies)]
        while True:
            async with session.post(self.call.path, data=body, headers=JSON_BODY) as response:
                if response.status != 200:
                    raise Failed(f"a stream got {response.status}: {(await response.text())[:200]}")
                self.started += 1
                async for piece in response.content.iter_any():
                    self.events += piece.count(b"data: ")


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fairness", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )  # fmt: skip
    parser.add_argument("--config", type=Path, default=Path("configs/tiny.yaml"))
    parser.add_argument("--model", default="pith-mini")
    parser.add_argument("--streams", type=count, default=64)
    parser.add_argument("--stream-tokens", type=count, default=1024)
    parser.add_argument("--tokens", type=count, default=16, help="of each of the other project's replies")
    parser.add_argument("--requests", type=count, default=30, help="of the other project, in each half round")
    parser.add_argument("--rounds", type=count, default=3)
    parser.add_argument(
        "--tier", choices=("flex", "priority"), help="of the other project's, where --config offers it"
    )
    parser.add_argument("--streams-tier", choices=("flex", "priority"), help="of the streams")
    parser.add_argument("--out", type=Path, default=Path("var/bench-fairness"), help="folder for the report")
    return parser.parse_args(words)


@asynccontextmanager
async def streaming(options: argparse.Namespace, target: Target) -> AsyncIterator[Streams]:
    """The first project's streams, begun when the block is entered. Raises `Failed` where none runs."""
    call = chat(
        options.model,
        tokens=options.stream_tokens,
        stream=True,
        prompts=options.streams,
        tier=options.streams_tier,
    )
    streams = Streams(call)
    async with target.session() as session:
        tasks = [asyncio.create_task(streams.keep_one(session, number)) for number in range(options.streams)]
        try:
            deadline = time.perf_counter() + UNTIL_STREAMING_S
            while not streams.started:
                if time.perf_counter() > deadline:
                    raise Failed("no stream began")
                await asyncio.sleep(POLL_S)
            yield streams
            for task in tasks:
                if task.done() and (error := task.exception()):
                    raise error
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def ask(options: argparse.Namespace, target: Target) -> list[float]:
    """Latencies of the second project's requests, one after the other. Raises `Failed`."""
    call = chat(options.model, tokens=options.tokens, stream=False, tier=options.tier)
    found = []
    async with target.session() as session:
        for number in range(options.requests):
            body = call.bodies[number % len(call.bodies)]
            clock = Clock(time.perf_counter())
            found.append((await exchange(session, call, body, clock=clock, due_s=0.0)).latency_ms)
    return found


async def rate_alone(streams: Streams) -> float:
    """Their events a second now."""
    began, before = time.perf_counter(), streams.events
    await asyncio.sleep(ALONE_S)
    return (streams.events - before) / (time.perf_counter() - began)


async def measure(options: argparse.Namespace, until: ExitStack) -> list[Round]:
    """Raises `CannotRun` or `Failed`."""
    folder = Path(until.enter_context(tempfile.TemporaryDirectory(prefix="pith-fairness-")))
    server = pith_server(options.config, folder, options.model)
    until.callback(server.stop)
    await server.start()
    other = Target(server.url, new_key(folder, "other"))
    await ask(options, other)
    rounds = []
    with bars() as progress:
        task = progress.add_task("rounds", total=options.rounds)
        for _ in range(options.rounds):
            found = Round(quiet_ms=await ask(options, other))
            async with streaming(options, server.target) as streams:
                before_it = await rate_alone(streams)
                began, before = time.perf_counter(), streams.events
                found.beside_ms = await ask(options, other)
                found.seconds, found.stream_events = time.perf_counter() - began, streams.events - before
                # Longer contexts take longer steps: what they have alone falls meanwhile.
                found.streams_alone = (before_it + await rate_alone(streams)) / 2
            rounds.append(found)
            progress.advance(task)
    return rounds


def _in_tier(tier: str | None) -> str:
    return f" ({tier})" if tier else ""


def report(options: argparse.Namespace, facts: machine.Facts, rounds: Sequence[Round]) -> Report:
    quiet = [ms for each in rounds for ms in each.quiet_ms]
    beside = [ms for each in rounds for ms in each.beside_ms]
    latencies = [["alone", spans(quiet)], ["beside the streams", spans(beside)]]
    ratios, rates = [one.ratio for one in rounds], [one.stream_events / one.seconds for one in rounds]
    late, used = [one.ratio_p99 for one in rounds], [one.used(options.tokens) for one in rounds]
    lines = [
        f"One project keeps {options.streams} streams of {options.stream_tokens} tokens"
        f"{_in_tier(options.streams_tier)} running, without any limit; "
        f"another sends requests of {options.tokens} tokens{_in_tier(options.tier)} one after "
        f"the other. {options.rounds} rounds of "
        f"{options.requests} requests alone and as many beside the streams.", "",
        *table(["the other project", "p50 / p99 ms"], latencies), "",
        "p50 beside the streams over alone, median (least to greatest) of the rounds: "
        f"{spread(ratios)}; p99 {spread(late)}. Meanwhile the streams had {spread(rates, 0)} events/s: with the other "
        f"project's tokens {spread(used)} of what they have alone.",
    ]  # fmt: skip
    panel = plots.distribution("latency of the other project", "ms", {"alone": quiet, "beside": beside})
    takeaway = (
        f"While one project has {options.streams} streams, another's requests take "
        f"{statistics.median(ratios):.1f} times as long as alone"
    )
    body = {"rounds": [asdict(one) for one in rounds]}
    return Report(
        "fairness",
        "One project beside another",
        facts,
        lines,
        body,
        {"fairness": plots.Picture(takeaway, [panel])},
    )


def main() -> None:
    options, facts = arguments(), machine.facts("benchmarks.fairness")
    with ExitStack() as until, no_report_on_failure():
        rounds = uvloop.run(measure(options, until))
    report(options, facts, rounds).publish(options.out)


if __name__ == "__main__":
    main()
