"""Makes a ledger of years and measures it: `python -m benchmarks.years --events 50000000 --database postgresql`."""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from uuid import uuid4

import psutil

from benchmarks.ledger.postgres_server import private_postgres
from benchmarks.load.arguments import count
from benchmarks.years.generate import Years, generate
from benchmarks.years.label_page import measure_page
from benchmarks.years.measure import (
    READ_TIMEOUT_S,
    Figures,
    archive_month,
    move_money,
    put_into_log,
    read_books,
)
from billing.ledger.spool import Spool
from billing.store.database import open_database
from billing.store.migration import upgrade


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.years", description=__doc__)
    parser.add_argument("--events", type=count, default=50_000_000, help="default: 50,000,000")
    parser.add_argument(
        "--database", default="sqlite",
        help="sqlite, postgresql (a private server, started for this), or the URL of an empty database that is "
        "nobody's, or of one that this made before; default: sqlite",
    )  # fmt: skip
    parser.add_argument(
        "--persons", type=count, default=0,
        help="that requests of one project name, with 50 tags; then its page of people and tags is measured alone",
    )  # fmt: skip
    parser.add_argument("--folder", type=Path, help="where the databases lie; default: the temporary folder")
    parser.add_argument("--rounds", type=count, default=5, help="of holds and settlements in each ledger")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each round")
    parser.add_argument("--out", type=Path, default=Path("var/bench-years"), help="folder for the report")
    return parser.parse_args(words)


async def run(url: str, empty_url: str, folder: Path, options: argparse.Namespace) -> Figures:
    figures, years = Figures(), Years(options.events, persons=options.persons)
    await upgrade(url, timeout_s=READ_TIMEOUT_S)
    database = open_database(url, timeout_s=READ_TIMEOUT_S, pool_size=2)
    spool = Spool(folder / "books.db")
    try:
        began = time.perf_counter()
        if (
            await database.read(lambda c: c.exec_driver_sql("SELECT count(*) FROM workspaces").scalar_one())
            == 0
        ):
            await generate(database, years)
            figures.seconds["generate"] = [time.perf_counter() - began]
        if years.persons:
            return figures
        await put_into_log(database, figures)
        await read_books(database, years, figures, spool)
        await archive_month(database, years, figures, folder / "archive", spool)
    finally:
        await spool.close()
        await database.close()
    await move_money(url, empty_url, folder, figures, rounds=options.rounds, seconds=options.seconds)
    return figures


@contextmanager
def databases(options: argparse.Namespace) -> Iterator[tuple[str, str, Path]]:
    """The URLs of the ledger of years and of an empty one, and a folder."""
    with tempfile.TemporaryDirectory(prefix="pith-years-", dir=options.folder) as name:
        folder = Path(name)
        empty = f"sqlite:///{folder / 'empty.db'}"
        if options.database == "sqlite":
            yield f"sqlite:///{folder / 'years.db'}", empty, folder
        elif options.database == "postgresql":
            # Not within `folder`, which is this user's alone: the server runs as another.
            with private_postgres(fsync=True, folder=options.folder) as server:
                for database in ("years", "nothing"):
                    asyncio.run(_create(server, database))
                yield f"{server}/years", f"{server}/nothing", folder
        elif options.database.startswith("sqlite"):
            yield options.database, empty, folder
        else:
            server, other = options.database.rsplit("/", 1)[0], f"empty_{uuid4().hex}"
            asyncio.run(_create(server, other))
            yield options.database, f"{server}/{other}", folder


async def _create(server: str, name: str) -> None:
    import asyncpg  # type: ignore[import-untyped]

    connection = await asyncpg.connect(f"{server.replace('+asyncpg', '')}/postgres")
    try:
        await connection.execute(f"CREATE DATABASE {name}")
    finally:
        await connection.close()


def report(figures: Figures, options: argparse.Namespace, load: float) -> str:
    lines = [
        f"{options.events:,} events, {options.database}; load before: {load:.1f} on {psutil.cpu_count()} cores",
        "",
    ]
    lines += ["| | s, median | runs |", "|---|---|---|"]
    lines += [
        f"| {name} | {statistics.median(found):.3f} | {len(found)} |"
        for name, found in figures.seconds.items()
    ]
    lines += [
        "",
        *(f"events read by reconcile, {name}: {number:,}" for name, number in figures.events_read.items()),
    ]
    took = statistics.median(figures.seconds["archive, a month"])
    size = figures.archived_bytes / max(1, figures.archived_events)
    lines.append(
        f"archived: {figures.archived_events:,} events, {figures.archived_events / took:,.0f}/s, {size:.0f} bytes each"
    )
    years, none = statistics.median(figures.pairs_of_years), statistics.median(figures.pairs_of_none)
    lines.append(f"pairs/s: {years:,.0f} beside {none:,.0f} in an empty ledger, {figures.ratio:.2f} times")
    return "\n".join(lines)


def main() -> None:
    options, load = arguments(), psutil.getloadavg()[0]
    with databases(options) as (url, empty_url, folder):
        figures = asyncio.run(run(url, empty_url, folder, options))
        if options.persons:
            print(asyncio.run(measure_page(url, folder, load)))
            return
    options.out.mkdir(parents=True, exist_ok=True)
    name = options.database.split(":")[0].split("+")[0]
    (options.out / f"{name}.json").write_text(json.dumps(asdict(figures), indent=1))
    print(report(figures, options, load))


if __name__ == "__main__":
    main()
