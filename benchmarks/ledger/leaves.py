"""A transparency log of many leaves, and what its parts take then: `python -m benchmarks.ledger.leaves`.

Entries are random bytes, as hashes are, and are written as the sequencer writes them, without the events below. Then
it measures, on real events: the checkpoint after new leaves, and the proof of single leaves of any age.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.ledger.load import Bench
from benchmarks.ledger.log import sequencing
from benchmarks.ledger.postgres_server import private_postgres
from benchmarks.load.arguments import count
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.store.database import Database, LongWork, open_database
from billing.store.migration import upgrade
from billing.transparency import log_sql
from billing.transparency.log_sql import ENTRY_BYTES, Edge
from billing.transparency.places import indices
from billing.transparency.sequencer import grown
from billing.transparency.tree import EMPTY_ROOT, TILE_WIDTH

AT_ONCE = TILE_WIDTH**2
PROOFS, ROUNDS, NEW_LEAVES = 300, 20, 500
MS = 1000
# As if the last leaf were of now.
FIRST_DIGITS = 12


class Log:
    """`per_minute`: how many leaves have ids of one minute, which are looked through for one of them."""

    def __init__(self, database: Database, leaves: int, per_minute: int) -> None:
        self._database = database
        self._leaves = leaves
        self._per_minute = per_minute
        self._first_minute = int(time.time() // 60) - leaves // per_minute - 1
        # The entries of some leaves, by index.
        self.known: dict[int, bytes] = {}

    def id_of(self, index: int) -> str:
        """As an event's of that minute begins."""
        return f"{self._minute_of(index) * 60_000:0{FIRST_DIGITS}x}{index:020x}"

    def _minute_of(self, index: int) -> int:
        return self._first_minute + index // self._per_minute

    async def fill(self) -> None:
        edge, rng = Edge(0, EMPTY_ROOT, b"", {}), random.Random(1)
        wanted = sorted(rng.sample(range(self._leaves), min(PROOFS, self._leaves)))
        while edge.size < self._leaves:
            number = min(AT_ONCE, self._leaves - edge.size)
            entries = [os.urandom(ENTRY_BYTES) for _ in range(number)]
            self.known |= {at: entries[at - edge.size] for at in wanted if 0 <= at - edge.size < number}
            await self._put(edge, entries)
            head = await self._database.read(log_sql.head)
            edge = await self._database.read(partial(log_sql.edge, of=head))
            print(f"\r{edge.size:,} leaves", end="", flush=True)
        print()

    async def _put(self, edge: Edge, entries: list[bytes]) -> None:
        growth = await asyncio.to_thread(grown, edge, entries)
        head = await self._database.read(log_sql.head)
        minutes = [self._minute_of(edge.size + place) for place in range(len(entries))]
        put = partial(log_sql.put, growth=growth, minutes=minutes, note="", at=datetime.now(UTC))
        await self._database.write(LongWork(lambda connection: put(connection, of=head)))

    async def prove(self) -> list[float]:
        """Milliseconds for the index, the entry and the path of one leaf, each by itself."""
        taken = []
        for index, entry in random.Random(2).sample(sorted(self.known.items()), len(self.known)):
            began = time.perf_counter()
            found, path = await self._database.read(partial(_proof, id_=self.id_of(index), entry=entry))
            taken.append((time.perf_counter() - began) * MS)
            assert found == index and len(path) > 1, (found, index)
        return taken


def _proof(connection: Any, *, id_: str, entry: bytes) -> tuple[int | None, list[bytes]]:
    index = indices(connection, {id_: entry}).get(id_)
    return index, list(log_sql.read_tree(connection).around([index])) if index is not None else []


async def checkpoints(database: Database, folder: Path) -> list[float]:
    """Milliseconds from settled events to their checkpoint."""
    spool = Spool(folder / "spool.db")
    ledger = Ledger(database, spool)
    bench, taken = Bench(database, ledger), []
    try:
        await bench.prepare()
        caller = await bench.new_caller()
        async with sequencing(database, every_s=10**6) as sequencer:
            await sequencer.once()
            for _ in range(ROUNDS):
                for _ in range(NEW_LEAVES // 20):
                    holds = [await bench.hold(caller) for _ in range(20)]
                    await asyncio.gather(*map(bench.settle, holds))
                before = await database.read(log_sql.head)
                began = time.perf_counter()
                await sequencer.once()
                taken.append((time.perf_counter() - began) * MS)
                after = await database.read(log_sql.head)
                assert after.size == before.size + NEW_LEAVES // 20 * 20
    finally:
        await spool.close()
    return taken


async def bytes_of(database: Database, url: str) -> int:
    """On disk, of the log's tables with their indexes."""
    tables = ("log_head", "log_bundles", "log_tiles", "log_minutes")
    if url.startswith("postgresql"):
        sizes = " + ".join(f"pg_total_relation_size('{table}')" for table in tables)
        statement = f"SELECT {sizes}"
    else:
        statement = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
    return int(await database.read(lambda c: c.exec_driver_sql(statement).scalar_one()))


async def measure(url: str, folder: Path, options: argparse.Namespace) -> None:
    await upgrade(url)
    database = open_database(url, timeout_s=600)
    try:
        log = Log(database, options.leaves, options.per_minute)
        began = time.perf_counter()
        await log.fill()
        print(f"written in {time.perf_counter() - began:.0f} s, {options.per_minute:,} leaves a minute")
        size = await bytes_of(database, url)
        print(f"disk: {size / options.leaves:.1f} bytes a leaf ({size:,})")
        print(_line("proof of one", await log.prove()))
        print(_line(f"checkpoint after {NEW_LEAVES} new leaves", await checkpoints(database, folder)))
        print(_line("proof of one, then", await log.prove()))
    finally:
        await database.close()


def _line(name: str, taken: list[float]) -> str:
    return f"{name}: median {median(taken):.2f} ms, p99 {quantiles(taken, n=100)[98]:.2f} ms, most {max(taken):.2f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ledger.leaves", description=__doc__)
    parser.add_argument("--leaves", type=count, default=50_000_000, help="default: 50,000,000")
    parser.add_argument("--per-minute", type=count, default=1000, help="of ids; default: 1000")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--folder", type=Path, help="where the database lies; default: the temporary folder")
    options = parser.parse_args()
    with ExitStack() as stack:
        own = tempfile.TemporaryDirectory(prefix="pith-bench-", dir=options.folder)
        folder = Path(stack.enter_context(own))
        url = f"sqlite:///{folder / 'ledger.db'}"
        if options.database == "postgresql":
            server = stack.enter_context(private_postgres(fsync=True, folder=options.folder))
            url = f"{server}/postgres"
        asyncio.run(measure(url, folder, options))


if __name__ == "__main__":
    main()
