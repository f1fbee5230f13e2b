"""Memory over many requests by the line that allocated it: `python -m tests.allocations --requests 1000000`.

The whole service in this process, with a fake engine and a real ledger: chats as JSON and as streams, streams that are
left, compressions and what must be refused, so many at a time. `tracemalloc` is read after a warm-up, half way and at
the end; what requests leave behind is what the second half has added, when all caches are full. The exit status is 1
where a line holds more objects than that allows, or a task, a file, a thread or a hold is left."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import psutil
import typer
import uvloop
from starlette.types import Message

from billing.caller import NO_LIMITS
from tests.serve.compressing import ReadyModel, local_model
from tests.serve.served import HI, Client, Served, serving

# Objects of one line. `sqlite3` itself forgets its cursors two hundred at a time, for each connection.
ALLOWED, ALLOWED_SHARE = 400, 0.02
CLIENTS = 16
SITES = 15
FORGET_EVERY = 1000
CONTEXT = " ".join(
    f"House {number} has a red door, and its garden is {number} feet long." for number in range(20)
)
KINDS = ("JSON", "SSE", "JSON", "SSE", "left", "compress", "refused")


@dataclass(frozen=True)
class Reading:
    """What the process held when nothing ran."""

    requests: int
    traced: tracemalloc.Snapshot
    bytes: int
    resident_mib: float
    tasks: int
    files: int
    threads: int


@dataclass
class Counted:
    """The requests that were made, and how they ended."""

    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        return self.outcomes.total()


@asynccontextmanager
async def service(folder: Path) -> AsyncIterator[tuple[Served, ReadyModel]]:
    model = ReadyModel(local_model())
    lexical = {"id": "lexical", "name": "Lexical", "blurb": "For tests.", "kind": "lexical"}
    async with serving(folder, compressors={"lexical": model}, compression={"models": [lexical]}) as served:
        served.key = await served.new_key("many", limits=NO_LIMITS)
        yield served, model


class Leaving(Client):
    """Leaves when a few events have come."""

    async def send(self, message: Message) -> None:
        await super().send(message)
        if len(self.sent) > 2:
            self.gone.set()


def request(served: Served, number: int) -> tuple[str, Client]:
    kind = KINDS[number % len(KINDS)]
    # An id of its own, a prompt that is one of many, and more text than one answer of a cache.
    asked = [{"role": "user", "content": f"{HI[0]['content']} {number % 5000}"}]
    name = f"r{number}"
    if kind == "compress":
        body = {"query": f"Which house is {number % 997}?", "input": CONTEXT}
        return kind, served.post("/v1/compress", body, headers={"X-Request-ID": name})
    if kind == "refused":
        return kind, served.chat(request_id=name, messages=asked, temperature=9)
    client = served.chat(request_id=name, messages=asked, stream=kind != "JSON", max_tokens=6)
    return kind, Leaving(**vars(client)) if kind == "left" else client


async def many(
    served: Served, model: ReadyModel, counted: Counted, upto: int, until: float, *, forgets: bool
) -> None:
    """So many requests at a time until there were `upto` of them, or the time is over."""
    numbers = itertools.count(counted.total)

    async def client() -> None:
        for number in numbers:
            if number >= upto or time.monotonic() > until:
                return
            kind, asked = request(served, number)
            await asked.run()
            status = asked.status if any(m["type"] == "http.response.start" for m in asked.sent) else "none"
            counted.outcomes[f"{kind} {status}"] += 1
            if forgets and number % FORGET_EVERY == 0:
                forget(served, model)

    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(client())


def forget(served: Served, model: ReadyModel) -> None:
    """What the fakes remember of their requests."""
    model.reset()
    for kept in (served.engine.requests, served.engine.aborted, served.engine.counted):
        kept.clear()


async def read(counted: Counted) -> Reading:
    await asyncio.sleep(0)
    gc.collect()
    process = psutil.Process()
    own = [tracemalloc.Filter(False, tracemalloc.__file__), tracemalloc.Filter(False, __file__)]
    snapshot = tracemalloc.take_snapshot().filter_traces(own)
    size = sum(trace.size for trace in snapshot.traces)
    return Reading(
        counted.total,
        snapshot,
        size,
        process.memory_info().rss / 2**20,
        len(asyncio.all_tasks()),
        process.num_fds(),
        process.num_threads(),
    )


def allowed(before: Reading, after: Reading) -> float:
    """Objects that a line may hold more of than before."""
    return ALLOWED + ALLOWED_SHARE * (after.requests - before.requests)


def a_request(before: Reading, after: Reading) -> float:
    """Bytes that each has left."""
    return (after.bytes - before.bytes) / max(1, after.requests - before.requests)


def grown(before: Reading, after: Reading) -> list[str]:
    """The lines that hold more than before, most first."""
    differences = after.traced.compare_to(before.traced, "lineno")
    more = sorted((one for one in differences if one.size_diff > 0), key=lambda one: -one.size_diff)
    return [
        f"{one.size_diff:+,} bytes, {one.count_diff:+,} objects: {_place(one.traceback[0])}"
        for one in more[:SITES]
    ]


def _place(frame: tracemalloc.Frame) -> str:
    parts = Path(frame.filename).parts
    return f"{'/'.join(parts[-3:])}:{frame.lineno}"


async def measured(
    folder: Path,
    requests: int,
    warm_up: int,
    within_s: float,
    *,
    forgets: bool = True,
    tell: Callable[[list[Reading], Counted], None] = lambda readings, counted: None,
) -> tuple[list[Reading], Counted]:
    """Readings after the warm-up, half way and at the end, which `tell` gets before anything else may fail. The fakes
    remember each request unless told to forget."""
    counted, until = Counted(), time.monotonic() + within_s
    tracemalloc.start()
    try:
        async with service(folder) as (served, model):
            readings = []
            half = warm_up + (requests - warm_up) // 2
            for upto, deadline in ((warm_up, until), (half, until - within_s / 2), (requests, until)):
                await many(served, model, counted, upto, deadline, forgets=forgets)
                if forgets:
                    forget(served, model)
                readings.append(await read(counted))
            tell(readings, counted)
            await served.assert_nothing_is_left_open()
    finally:
        tracemalloc.stop()
    return readings, counted


def complaints(readings: list[Reading]) -> list[str]:
    warm, half, end = readings
    most = allowed(half, end)
    found = [
        f"{_place(one.traceback[0])} holds {one.count_diff:+,} objects, more than {most:.0f}"
        for one in end.traced.compare_to(half.traced, "lineno")
        if one.count_diff > most
    ]
    for name in ("tasks", "files", "threads"):
        before, after = getattr(warm, name), getattr(end, name)
        if after > before:
            found.append(f"{name}: {before} after the warm-up, {after} at the end")
    return found


def main(
    requests: Annotated[int, typer.Option(min=100, help="How many, with the warm-up.")] = 1_000_000,
    warm_up: Annotated[int, typer.Option(min=10, help="Of these, before the first reading.")] = 20_000,
    within_s: Annotated[float, typer.Option(min=1, help="Seconds after which fewer are enough.")] = 36_000,
    folder: Annotated[
        Path | None, typer.Option(help="Where the ledger is; /dev/shm saves its syncs.")
    ] = None,
) -> None:
    """Make that many requests and print which lines hold more memory than before."""
    with tempfile.TemporaryDirectory(prefix="pith-allocations-", dir=folder) as name:
        readings, _ = uvloop.run(measured(Path(name), requests, warm_up, within_s, tell=told))
    wrong = complaints(readings)
    typer.echo("\n".join(wrong) or "nothing grows")
    sys.exit(1 if wrong else 0)


def told(readings: list[Reading], counted: Counted) -> None:
    warm, half, end = readings
    typer.echo(json.dumps(dict(sorted(counted.outcomes.items()))))
    for when, one in (("warm-up", warm), ("half way", half), ("end", end)):
        typer.echo(
            f"{when}: {one.requests:,} requests, {one.bytes / 2**20:.2f} MiB by Python, {one.resident_mib:.0f} MiB "
            f"resident, {one.tasks} tasks, {one.files} files, {one.threads} threads"
        )
    typer.echo(
        f"left by each request: {a_request(warm, half):+.2f} bytes in the first half, "
        f"{a_request(half, end):+.2f} in the second"
    )
    for line in grown(half, end):
        typer.echo(f"  {line}")


if __name__ == "__main__":
    typer.run(main)
