"""The cost of kept originals to other requests' holds and settlements: `python -m benchmarks.ledger.originals`.

Runs take turns: money alone, and beside two writers that keep texts of 8 MiB without end, chunk by chunk and with the
pauses of a server, and delete them. Chunks are random bytes, as ciphertext is, of texts compressed to a quarter.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

import uvloop

from benchmarks.ledger.load import Bench, Samples
from benchmarks.ledger.postgres_server import private_postgres
from benchmarks.load.arguments import count
from billing.caller import Caller
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.originals.original_sql import Head
from billing.originals.original_store import OriginalStore
from billing.store.database import open_database
from billing.store.migration import upgrade

CHUNKS = 512
CHUNK_BYTES = 4096
# As `serve.originals.originals` and `turns` have it.
STEP_CHUNKS, LONGEST_PAUSE_S = 8, 0.1
WRITERS = 2
ALONE, BESIDE = "alone", "beside originals"


@dataclass
class Kept:
    """How long it took to keep each text."""

    seconds: list[float] = field(default_factory=list)


class Writers:
    """Keeps one text after the other, and deletes each."""

    def __init__(self, store: OriginalStore, caller: Caller, kept: Kept) -> None:
        self._store = store
        self._caller = caller
        self._kept = kept
        self._free = asyncio.Semaphore(1)

    async def run(self, name: str) -> None:
        number = 0
        while True:
            number += 1
            began = time.perf_counter()
            await self._keep(f"{name}-{number}")
            self._kept.seconds.append(time.perf_counter() - began)
            await self._store.delete_rest(self._caller.project_id, f"{name}-{number}")

    async def _keep(self, id_: str) -> None:
        head = Head(self._caller.project_id, id_, os.urandom(16).hex(), 2**23, CHUNKS, 2**23)
        steps = [
            [(number, os.urandom(CHUNK_BYTES)) for number in range(first, first + STEP_CHUNKS)]
            for first in range(0, CHUNKS, STEP_CHUNKS)
        ]
        async with self._turn():
            await self._store.begin(head, steps[0], retain_s=600, most_bytes=2**40)
        for step in steps[1:]:
            async with self._turn():
                await self._store.add(head, step)
        async with self._turn():
            # It has expired at once, so that it can be deleted.
            await self._store.finish(head, retain_s=0)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            yield
        finally:
            loop.call_later(min(loop.time() - began, LONGEST_PAUSE_S), self._free.release)


async def run(url: str, spool_path: Path, clients: int, seconds: float, kept: Kept | None) -> Samples:
    database, spool = open_database(url), Spool(spool_path)
    ledger = Ledger(database, spool)
    bench = Bench(database, ledger)
    await bench.prepare()
    writing: list[asyncio.Task[None]] = []
    if kept is not None:
        writers = Writers(OriginalStore(database), await bench.new_caller(), kept)
        writing = [asyncio.create_task(writers.run(f"w{number}")) for number in range(WRITERS)]
    try:
        samples = await bench.run(clients=clients, workspaces=clients, seconds=seconds)
        # On a slow machine the first text may take longer.
        while kept and not kept.seconds and not (await asyncio.wait(writing, timeout=0.05))[0]:
            pass
        return samples
    finally:
        for task in writing:
            task.cancel()
        await asyncio.gather(*writing, return_exceptions=True)
        await ledger.close()
        await spool.close()
        await database.close()


def line(name: str, samples: Sequence[Samples], kept: Kept | None) -> str:
    holds = [value for each in samples for value in each.hold_ms]
    settlements = [value for each in samples for value in each.settle_ms]
    figures = [f"{f(values):.2f}" for values in (holds, settlements) for f in (median, _p99, max)]
    pairs = median(each.pairs_per_s for each in samples)
    texts = "" if kept is None else f"{len(kept.seconds)} texts of 8 MiB, {median(kept.seconds):.2f} s each"
    return f"| {name} | {' | '.join(figures)} | {pairs:.0f} | {texts} |"


def _p99(values: Sequence[float]) -> float:
    return quantiles(values, n=100)[98]


async def measure(name: str, url: str, folder: Path, options: argparse.Namespace) -> list[str]:
    await upgrade(url)
    alone: list[Samples] = []
    beside: list[Samples] = []
    kept = Kept()
    for _ in range(options.rounds):
        alone.append(await run(url, folder / "spool.db", options.clients, options.seconds, None))
        beside.append(await run(url, folder / "spool.db", options.clients, options.seconds, kept))
    return [line(f"{name}, {ALONE}", alone, None), line(f"{name}, {BESIDE}", beside, kept)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ledger.originals", description=__doc__)
    parser.add_argument("--clients", type=count, default=16, help="default: 16")
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="of each run; half of it for settlements alone"
    )
    parser.add_argument("--rounds", type=count, default=3, help="runs of each kind, in turns")
    parser.add_argument("--folder", type=Path, help="where the databases lie; default: the temporary folder")
    options = parser.parse_args()
    print("| | hold p50 ms | p99 | max | settle p50 ms | p99 | max | pairs/s | kept meanwhile |")
    print("|---|---|---|---|---|---|---|---|---|")
    with ExitStack() as stack:
        own = tempfile.TemporaryDirectory(prefix="pith-bench-", dir=options.folder)
        folder = Path(stack.enter_context(own))
        server = stack.enter_context(private_postgres(fsync=True, folder=options.folder))
        for name, url in (
            ("SQLite", f"sqlite:///{folder / 'ledger.db'}"),
            ("PostgreSQL", f"{server}/postgres"),
        ):
            for row in uvloop.run(measure(name, url, folder, options)):
                print(row, flush=True)


if __name__ == "__main__":
    main()
