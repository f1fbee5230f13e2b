"""A month's proof: what making the file takes, and what its reader's check takes: `python -m benchmarks.ledger.proof`.

The events are settled on a SQLite ledger and put into the log first, as a server does it; their prices are right, so
that the check finds nothing to complain of. It is run as its reader runs it: `python verify.py FILE`.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median

import uvloop

from benchmarks.ledger.load import MODEL, BadRun, Bench
from benchmarks.ledger.log import LOG_SIGNER, sequencing
from benchmarks.load.arguments import count
from billing.books.statement_proof import statement_proof
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.price import ModelPrice, cost
from billing.store.database import open_database
from billing.store.migration import upgrade
from billing.transparency import verify
from billing.transparency.log_sql import status
from billing.usage import UsageFigures

CLIENTS = 16
PRICE = ModelPrice(MODEL, 100_000, 400_000, 10_000)


async def write_proof(folder: Path, events: int) -> tuple[Path, float]:
    """The file of a month with so many events, and the seconds that it took to make it."""
    database, spool = open_database(f"sqlite:///{folder}/ledger.db"), Spool(folder / "spool.db")
    ledger = Ledger(database, spool)
    bench = Bench(database, ledger)
    await bench.prepare()
    caller = await bench.new_caller()
    due = cost(PRICE, prompt_tokens=200, completion_tokens=100, minimum=True)
    left = events

    async def client() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            hold, now = await bench.hold(caller), datetime.now(UTC)
            figures = UsageFigures(prompt_tokens=200, completion_tokens=100, cached_tokens=0, stream=True)
            await ledger.settle(hold, figures=figures, cost=due, outcome="completed", now=now)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(client())
        async with sequencing(database) as sequencer:
            while (await database.read(status)).pending:
                await sequencer.once()
        began = time.perf_counter()
        month = f"{datetime.now(UTC):%Y-%m}"
        made = await database.read(
            partial(statement_proof, workspace=caller.workspace_id, month=month, made_at=datetime.now(UTC))
        )
        path = folder / "proof.json"
        with path.open("w") as file:
            file.writelines(made.pieces(LOG_SIGNER))
        return path, time.perf_counter() - began
    finally:
        await ledger.close()
        await spool.close()
        await database.close()


def check(path: Path) -> tuple[float, float]:
    """Wall and processor seconds of the reader's check. Raises `BadRun` where it finds anything."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, verify.__file__, path], capture_output=True, text=True, check=False
    )
    took_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise BadRun(f"the check found: {done.stdout[:1000]}{done.stderr[:1000]}")
    return took_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ledger.proof", description=__doc__)
    parser.add_argument("--events", type=count, default=100_000, help="default: 100,000")
    parser.add_argument("--checks", type=count, default=5, help="of which the median is reported")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pith-bench-") as folder:
        uvloop.run(upgrade(f"sqlite:///{folder}/ledger.db"))
        path, made_s = uvloop.run(write_proof(Path(folder), options.events))
        checks = [check(path) for _ in range(options.checks)]
        wall_s, cpu_s = (median(one[at] for one in checks) for at in (0, 1))
        print("| events | file | made in | checked in | of it CPU |")
        print("|---|---|---|---|---|")
        size = path.stat().st_size / 1e6
        print(f"| {options.events:,} | {size:.0f} MB | {made_s:.1f} s | {wall_s:.1f} s | {cpu_s:.1f} s |")


if __name__ == "__main__":
    main()
