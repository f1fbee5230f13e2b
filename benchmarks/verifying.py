"""Waiting times of chats while replies are scored again: the same requests with `compression.verify` 0 and 1, in turns.

    python -m benchmarks.served -- python -m benchmarks.verifying --url http://127.0.0.1:{port} [--rounds 6]

Each half of a round sends chats with a compressed prompt and plain ones, from clients that pause after each reply: in
the pauses there is time to score. Which half comes first changes from round to round. Times are as a client sees them.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import aiohttp
import orjson
import uvloop

from benchmarks.load import machine
from benchmarks.load.arguments import add_server, count, positive
from benchmarks.load.bars import bars
from benchmarks.load.exchange import Call, Clock, Failed, chat, completion, exchange
from benchmarks.load.loop import Target
from benchmarks.load.report import Report, no_report_on_failure, spans, table
from benchmarks.load.sample import percentile
from benchmarks.load.text import QUERY, made_up

PATH = "/v1/chat/completions"
# One in so many requests has a prompt that is compressed.
COMPRESSED_EVERY = 4
CHECKS = "/v1/usage?group_by=model"


@dataclass(frozen=True, slots=True)
class Round:
    """Latencies in ms of the plain chats of both halves, and the chats that were checked in the second kind."""

    off_ms: list[float]
    on_ms: list[float]
    checked: int

    def ratio(self, percent: int) -> float:
        return percentile(self.on_ms, percent) / percentile(self.off_ms, percent)


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.verifying",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_server(parser)
    parser.add_argument("--model", default="pith-mini")
    parser.add_argument("--clients", type=count, default=2, help="that each wait for their reply")
    parser.add_argument("--requests", type=count, default=200, help="in each half of a round")
    parser.add_argument(
        "--pause", type=positive, default=1.0, help="mean seconds between a reply and a request"
    )
    parser.add_argument("--tokens", type=count, default=32, help="of each reply")
    parser.add_argument("--context", type=count, default=12_000, help="characters of a prompt to compress")
    parser.add_argument("--rounds", type=count, default=6)
    parser.add_argument("--out", type=Path, default=Path("var/bench-verifying"), help="folder for the report")
    return parser.parse_args(words)


def long_chat(options: argparse.Namespace, number: int, *, verify: int) -> Call:
    """A chat with a prompt of its own that is compressed."""
    text = made_up(options.context, seed=number)[: options.context]
    part = {"type": "text", "text": text, "compress": True}
    body = {
        "model": options.model,
        "messages": [{"role": "user", "content": [part, {"type": "text", "text": QUERY}]}],
        "compression": {"target_ratio": 0.3, "verify": verify},
        "max_tokens": options.tokens,
        "temperature": 0,
        "ignore_eos": True,
    }
    return Call(PATH, (orjson.dumps(body),), False, completion, options.tokens)


async def half(
    session: aiohttp.ClientSession, options: argparse.Namespace, seed: int, *, verify: int
) -> list[float]:
    """The plain chats' latencies. The same seed is the same requests and pauses. Raises `Failed`."""
    plain, pauses = chat(options.model, tokens=options.tokens, stream=False), random.Random(seed)
    waits = [pauses.expovariate(1 / options.pause) for _ in range(options.requests)]
    left = iter(range(options.requests))
    found: list[float] = []

    async def client() -> None:
        for number in left:
            await asyncio.sleep(waits[number])
            is_long = number % COMPRESSED_EVERY == 0
            # The same in both halves; another one in each round, so that no cache has it.
            call = long_chat(options, 1000 * seed + number, verify=verify) if is_long else plain
            body = call.bodies[number % len(call.bodies)]
            sample = await exchange(session, call, body, clock=Clock(time.perf_counter()), due_s=0.0)
            if not is_long:
                found.append(sample.latency_ms)

    await asyncio.gather(*(client() for _ in range(options.clients)))
    return found


async def checked(session: aiohttp.ClientSession) -> int:
    """Chats of the key's project that were checked. Raises `Failed`."""
    async with session.get(CHECKS) as reply:
        body = await reply.read()
        if reply.status != 200:
            raise Failed(f"GET {CHECKS}: {reply.status} {body[:300].decode(errors='replace')}")
        return sum(row["checked_chats"] for row in orjson.loads(body)["preservation"])


async def one_round(session: aiohttp.ClientSession, options: argparse.Namespace, number: int) -> Round:
    """Raises `Failed`."""
    before = await checked(session)
    halves = {}
    for verify in (0, 1) if number % 2 else (1, 0):
        halves[verify] = await half(session, options, number + 1, verify=verify)
    return Round(halves[0], halves[1], await checked(session) - before)


async def measured(options: argparse.Namespace) -> list[Round]:
    """The rounds, after some requests that are thrown away. Raises `Failed`."""
    async with Target(options.url, options.key).session() as session:
        await half(session, argparse.Namespace(**{**vars(options), "requests": 8}), 0, verify=0)
        with bars() as progress:
            task = progress.add_task("rounds", total=options.rounds)
            rounds = []
            for number in range(options.rounds):
                rounds.append(await one_round(session, options, number))
                progress.advance(task)
    return rounds


def report(options: argparse.Namespace, facts: machine.Facts, rounds: Sequence[Round]) -> Report:
    checks = sum(each.checked for each in rounds)
    if not checks:
        raise Failed(
            "no chat was checked: give it longer pauses, or the server a larger share of the engine's time"
        )
    off = [ms for each in rounds for ms in each.off_ms]
    on = [ms for each in rounds for ms in each.on_ms]
    p50, p99 = (f"{statistics.median(each.ratio(percent) for each in rounds):.2f}" for percent in (50, 99))
    rows = [
        ["0", f"{len(off)}", spans(off), "", ""],
        ["1", f"{len(on)}", spans(on), p50, p99],
    ]
    lines = [
        f"{options.clients} clients that pause {options.pause:g} s on average, replies of {options.tokens} tokens; one "
        f"in {COMPRESSED_EVERY} requests has {options.context:,} characters to compress. {options.requests} requests "
        f"in each half of {len(rounds)} rounds, in which {checks} chats were checked.",
        "",
        *table(
            ("verify", "plain chats", "latency p50 / p99 ms", "p50 by that without", "p99 by that without"),
            rows,
        ),
        "",
        f"p99 in each round: {', '.join(f'{each.ratio(99):.2f}' for each in rounds)}. Over all rounds: "
        f"p50 {percentile(on, 50) / percentile(off, 50):.2f}, p99 {percentile(on, 99) / percentile(off, 99):.2f}.",
    ]
    return Report(
        "verifying", f"Chats while replies are scored again on {options.url}", facts, lines,
        {"rounds": [asdict(each) for each in rounds]},
    )  # fmt: skip


def main() -> None:
    options, facts = arguments(), machine.facts("benchmarks.verifying")
    with no_report_on_failure():
        rounds = uvloop.run(measured(options))
        found = report(options, facts, rounds)
    found.publish(options.out)


if __name__ == "__main__":
    main()
