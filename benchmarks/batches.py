"""Waiting times of interactive chats while a batch runs: the same requests alone and beside a batch, in turns.

    python -m benchmarks.served -- python -m benchmarks.batches --url http://127.0.0.1:{port} [--clients 4] [--rounds 5]

Each round sends so many requests from a closed loop of clients; then it submits a batch that outlasts them, sends the
same requests beside it, and cancels it. Times are as a client sees them.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import uvloop

from benchmarks.load import machine
from benchmarks.load.arguments import add_server, count
from benchmarks.load.bars import bars
from benchmarks.load.exchange import Call, Clock, Failed, chat, exchange
from benchmarks.load.loop import Target
from benchmarks.load.report import Report, no_report_on_failure, spans, table
from benchmarks.load.sample import percentile

PREFIX = "/openai/v1"
ENDPOINT = "/v1/chat/completions"
ENDED = ("completed", "failed", "cancelled", "expired")
BEGINS_WITHIN_S = 60.0
POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Round:
    """Latencies in ms of the same requests, and the lines of the batch that were run meanwhile."""

    alone_ms: list[float]
    beside_ms: list[float]
    lines: int
    seconds: float

    @property
    def ratio(self) -> float:
        """Of the 99th percentiles."""
        return percentile(self.beside_ms, 99) / percentile(self.alone_ms, 99)


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.batches",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_server(parser)
    parser.add_argument("--model", default="pith-mini")
    parser.add_argument("--clients", type=count, default=4, help="that each wait for their reply")
    parser.add_argument("--requests", type=count, default=200, help="in each half of a round")
    parser.add_argument("--tokens", type=count, default=32, help="of each reply")
    parser.add_argument("--lines", type=count, default=2000, help="of the batch")
    parser.add_argument("--line-tokens", type=count, default=128, help="of each of its replies")
    parser.add_argument("--rounds", type=count, default=5)
    parser.add_argument("--out", type=Path, default=Path("var/bench-batches"), help="folder for the report")
    return parser.parse_args(words)


async def load(session: aiohttp.ClientSession, call: Call, options: argparse.Namespace) -> list[float]:
    """Raises `Failed`."""
    left = iter(range(options.requests))
    found: list[float] = []

    async def client() -> None:
        for number in left:
            body = call.bodies[number % len(call.bodies)]
            clock = Clock(time.perf_counter())
            found.append((await exchange(session, call, body, clock=clock, due_s=0.0)).latency_ms)

    await asyncio.gather(*(client() for _ in range(options.clients)))
    return found


async def asked(session: aiohttp.ClientSession, method: str, path: str, **sent: Any) -> dict[str, Any]:
    """Raises `Failed`."""
    async with session.request(method, PREFIX + path, **sent) as reply:
        body = await reply.read()
        if reply.status != 200:
            raise Failed(f"{method} {path}: {reply.status} {body[:300].decode(errors='replace')}")
        fields: dict[str, Any] = orjson.loads(body)
        return fields


async def submitted(session: aiohttp.ClientSession, lines: bytes) -> str:
    """A batch of which the first line was run. Raises `Failed`."""
    form = aiohttp.FormData()
    form.add_field("purpose", "batch")
    form.add_field("file", lines, filename="lines.jsonl")
    file = await asked(session, "POST", "/files", data=form)
    wanted = {"input_file_id": file["id"], "endpoint": ENDPOINT, "completion_window": "24h"}
    batch = await asked(session, "POST", "/batches", json=wanted)
    deadline = time.perf_counter() + BEGINS_WITHIN_S
    while not (await completed(session, batch["id"])):
        if time.perf_counter() > deadline:
            raise Failed(f"no line of {batch['id']} was run in {BEGINS_WITHIN_S:g} s")
        await asyncio.sleep(POLL_S)
    return str(batch["id"])


async def completed(session: aiohttp.ClientSession, batch_id: str) -> int:
    """How many lines were run. Raises `Failed`, also where there are none left."""
    batch = await asked(session, "GET", f"/batches/{batch_id}")
    counts = batch["request_counts"]
    if batch["status"] in ENDED or 0 < counts["total"] == counts["completed"] + counts["failed"]:
        raise Failed(f"{batch_id} has no lines left ({batch['status']}): give it more --lines")
    return int(counts["completed"])


async def cancelled(session: aiohttp.ClientSession, batch_id: str) -> None:
    batch = await asked(session, "POST", f"/batches/{batch_id}/cancel")
    while batch["status"] not in ENDED:
        await asyncio.sleep(POLL_S)
        batch = await asked(session, "GET", f"/batches/{batch_id}")


async def one_round(
    session: aiohttp.ClientSession, call: Call, lines: bytes, options: argparse.Namespace
) -> Round:
    """Raises `Failed`."""
    alone_ms = await load(session, call, options)
    batch_id = await submitted(session, lines)
    before, began = await completed(session, batch_id), time.perf_counter()
    beside_ms = await load(session, call, options)
    seconds, run = time.perf_counter() - began, await completed(session, batch_id) - before
    await cancelled(session, batch_id)
    return Round(alone_ms, beside_ms, run, seconds)


def batch_of(options: argparse.Namespace) -> bytes:
    """The batch's input, of other prompts than the interactive ones."""
    call = chat(options.model, tokens=options.line_tokens, stream=False, prompts=options.lines)
    lines = []
    for number, body in enumerate(call.bodies):
        request = {**orjson.loads(body), "seed": number}
        line = {"custom_id": str(number), "method": "POST", "url": ENDPOINT, "body": request}
        lines.append(orjson.dumps(line) + b"\n")
    return b"".join(lines)


async def measured(options: argparse.Namespace) -> list[Round]:
    """The rounds, after some requests that are thrown away. Raises `Failed`."""
    call, lines = chat(options.model, tokens=options.tokens, stream=False), batch_of(options)
    async with Target(options.url, options.key).session() as session:
        await load(session, call, options)
        with bars() as progress:
            task = progress.add_task("rounds", total=options.rounds)
            rounds = []
            for _ in range(options.rounds):
                rounds.append(await one_round(session, call, lines, options))
                progress.advance(task)
    return rounds


def report(options: argparse.Namespace, facts: machine.Facts, rounds: Sequence[Round]) -> Report:
    alone = [ms for each in rounds for ms in each.alone_ms]
    beside = [ms for each in rounds for ms in each.beside_ms]
    ratios = [each.ratio for each in rounds]
    rows = [
        ["alone", f"{len(alone)}", spans(alone), ""],
        ["beside a batch", f"{len(beside)}", spans(beside), f"{statistics.median(ratios):.2f}"],
    ]
    rate = sum(each.lines for each in rounds) / sum(each.seconds for each in rounds)
    lines = [
        f"{options.clients} clients, replies of {options.tokens} tokens, {options.requests} requests in each half of "
        f"{len(rounds)} rounds. Beside them a batch whose replies have {options.line_tokens} tokens: {rate:.1f} of its "
        "lines were run each second.",
        "",
        *table(("chats", "requests", "latency p50 / p99 ms", "p99 by alone's, median of rounds"), rows),
        "",
        f"p99 by alone's in each round: {', '.join(f'{ratio:.2f}' for ratio in ratios)}.",
    ]
    return Report(
        "batches", f"Chats while a batch runs on {options.url}", facts, lines,
        {"rounds": [asdict(each) for each in rounds]},
    )  # fmt: skip


def main() -> None:
    options, facts = arguments(), machine.facts("benchmarks.batches")
    with no_report_on_failure():
        rounds = uvloop.run(measured(options))
        found = report(options, facts, rounds)
    found.publish(options.out)


if __name__ == "__main__":
    main()
