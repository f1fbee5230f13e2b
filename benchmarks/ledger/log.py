"""The cost of the transparency log to holds and settlements: `python -m benchmarks.ledger.log`.

Runs take turns: on a ledger whose triggers of the log were dropped, and on one that has them, beside a sequencer in a
process of its own, as `pith serve` is one, that puts all leaves into the tree while they come. It reports nothing
unless each settlement became a leaf.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext
from datetime import UTC, datetime
from multiprocessing.synchronize import Event
from operator import methodcaller
from pathlib import Path
from statistics import median

import uvloop

from benchmarks.ledger.load import BadRun, Bench, Samples
from benchmarks.ledger.postgres_server import private_postgres
from benchmarks.load.arguments import count
from billing.background.upkeep import Background, Loop, Round
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.store.database import Database, open_database
from billing.store.migration import newest_revision, upgrade
from billing.transparency.log_sql import status
from billing.transparency.notes import signer
from billing.transparency.sequencer import Sequencer

WITHOUT, WITH = "without", "with"
# More often than a server does it, so that no run of seconds ends before its leaves are made.
EVERY_S = 1.0
LOG_SIGNER = signer(b"a secret for the benchmark only", "bench")
READY_S = 120.0


@asynccontextmanager
async def sequencing(database: Database, *, every_s: float = EVERY_S) -> AsyncIterator[Sequencer]:
    sequencer = Sequencer(
        database,
        LOG_SIGNER,
        revision=newest_revision(),
        clock=lambda: datetime.now(UTC),
    )
    background = Background([Loop(Round("log", sequencer.once, every_s))])
    background.start()
    try:
        yield sequencer
    finally:
        await background.stop()


@contextmanager
def sequencing_apart(url: str) -> Iterator[None]:
    """In a process of its own, from its first round on."""
    spawning = multiprocessing.get_context("spawn")
    begun, ended = spawning.Event(), spawning.Event()
    process = spawning.Process(target=_sequence, args=(url, begun, ended), daemon=True)
    process.start()
    try:
        if not begun.wait(READY_S):
            raise BadRun("the sequencer's process did not begin")
        yield
    finally:
        ended.set()
        process.join(READY_S)


def _sequence(url: str, begun: Event, ended: Event) -> None:
    async def until_ended() -> None:
        database = open_database(url)
        try:
            async with sequencing(database) as sequencer:
                await sequencer.once()
                begun.set()
                await asyncio.to_thread(ended.wait)
            await sequencer.once()
        finally:
            await database.close()

    uvloop.run(until_ended())


async def run(url: str, spool_path: Path, clients: int, seconds: float, *, is_logged: bool) -> Samples:
    database, spool = open_database(url), Spool(spool_path)
    ledger = Ledger(database, spool)
    bench = Bench(database, ledger)
    await bench.prepare()
    try:
        before = (await database.read(status)).size
        with sequencing_apart(url) if is_logged else nullcontext():
            samples = await bench.run(clients=clients, workspaces=1, seconds=seconds)
        leaves = (await database.read(status)).size - before
        if is_logged and leaves != samples.settled:
            raise BadRun(f"{samples.settled} settlements became {leaves} leaves")
        return samples
    finally:
        await ledger.close()
        await spool.close()
        await database.close()


async def without_log(url: str) -> None:
    """Drops the triggers."""
    database = open_database(url)
    try:
        for table in ("usage_events", "adjustments"):
            drop = f"DROP TRIGGER {table}_log" + (f" ON {table}" if url.startswith("postgresql") else "")
            await database.write(methodcaller("exec_driver_sql", drop))
    finally:
        await database.close()


async def measure(name: str, urls: dict[str, str], folder: Path, options: argparse.Namespace) -> list[str]:
    for url in urls.values():
        await upgrade(url)
    await without_log(urls[WITHOUT])
    runs: dict[str, list[Samples]] = {kind: [] for kind in urls}
    for _ in range(options.rounds):
        for kind, url in urls.items():
            samples = await run(
                url, folder / f"{kind}.db", options.clients, options.seconds, is_logged=kind == WITH
            )
            runs[kind].append(samples)
    return lines(name, runs[WITHOUT], runs[WITH])


def lines(name: str, without: Sequence[Samples], with_: Sequence[Samples]) -> list[str]:
    found = []
    for what in ("pairs_per_s", "settlements_per_s"):
        before, after = (median(getattr(one, what) for one in samples) for samples in (without, with_))
        rate = what.removesuffix("_per_s")
        found.append(f"| {name} | {rate}/s | {before:,.0f} | {after:,.0f} | {after / before:.3f} |")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ledger.log", description=__doc__)
    parser.add_argument("--clients", type=count, default=16, help="default: 16")
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="of each run; half of it for settlements alone"
    )
    parser.add_argument("--rounds", type=count, default=5, help="runs of each kind, in turns")
    parser.add_argument("--folder", type=Path, help="where the databases lie; default: the temporary folder")
    options = parser.parse_args()
    print("| database | | without the log | with it | ratio |")
    print("|---|---|---|---|---|")
    with ExitStack() as stack:
        own = tempfile.TemporaryDirectory(prefix="pith-bench-", dir=options.folder)
        folder = Path(stack.enter_context(own))
        servers = [stack.enter_context(private_postgres(fsync=True, folder=options.folder))]
        sqlite = {kind: f"sqlite:///{folder / kind}-ledger.db" for kind in (WITHOUT, WITH)}
        postgres = dict(
            zip((WITHOUT, WITH), (f"{servers[0]}/postgres", f"{servers[0]}/template1"), strict=True)
        )
        for name, urls in (("SQLite", sqlite), ("PostgreSQL", postgres)):
            for row in uvloop.run(measure(name, urls, folder, options)):
                print(row, flush=True)


if __name__ == "__main__":
    main()
