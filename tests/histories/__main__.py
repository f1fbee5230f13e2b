"""Concurrent histories on a real PostgreSQL, and whether each is one that a serial ledger could have had."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from benchmarks.ledger.postgres_server import private_postgres
from tests.histories.run import rounds

console = Console()


def main(
    operations: Annotated[int, typer.Option(min=1, help="How many in all.")] = 100_000,
    of_round: Annotated[int, typer.Option(min=1, help="How many before each check.")] = 20_000,
    clients: Annotated[int, typer.Option(min=1, help="How many at once, on two servers.")] = 16,
    seed: Annotated[int, typer.Option(help="What each client does is drawn from it.")] = 1,
) -> None:
    """Hold, settle, give back, adjust, read, and change limits and keys, all at once."""
    began, total, versions, wrong = time.monotonic(), Counter[str](), 0, 0

    async def run(url: str, folder: Path) -> None:
        nonlocal versions, wrong
        asked = rounds(url, folder, clients=clients, operations=operations, of_round=of_round, seed=seed)
        async for found in asked:
            total.update(found.operations)
            versions += found.versions
            wrong += len(found.anomalies)
            for line in found.anomalies[:20]:
                console.print(f"[red]{escape(line)}")
            console.print(f"{total.total():,} operations, {versions:,} versions, {wrong} anomalies")

    with (
        tempfile.TemporaryDirectory(prefix="pith-histories-") as folder,
        private_postgres(fsync=False) as server,
    ):
        asyncio.run(run(f"{server}/postgres", Path(folder)))
    console.print(f"{total.total():,} operations in {time.monotonic() - began:.0f} s, {wrong} anomalies")
    for what, count in sorted(total.items()):
        console.print(f"  {count:>9,} {what}")
    raise typer.Exit(1 if wrong else 0)


if __name__ == "__main__":
    typer.run(main)
