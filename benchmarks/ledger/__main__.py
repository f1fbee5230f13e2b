"""Measures hold and settle: `python -m benchmarks.ledger --databases sqlite,postgresql --clients 1,16,64`."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import psutil
import uvloop

from benchmarks.ledger import report
from benchmarks.ledger.load import BadRun, Bench, Samples
from benchmarks.ledger.postgres_server import PostgresNotFound, private_postgres
from benchmarks.ledger.report import Scenario
from benchmarks.load.arguments import count, counts
from benchmarks.load.bars import bars
from billing.errors import BillingError
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.store.database import open_database, parse_url
from billing.store.migration import upgrade

DATABASES = ("sqlite", "postgresql")


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ledger", description=__doc__)
    parser.add_argument("--databases", type=_databases, default=DATABASES, help="default: sqlite,postgresql")
    parser.add_argument(
        "--url", type=_postgres_url,
        help="a PostgreSQL database that nobody else writes to; default: a private server, started for this",
    )  # fmt: skip
    parser.add_argument("--clients", type=counts, default=(1, 16, 64), help="default: 1,16,64")
    parser.add_argument("--workspaces", type=counts, default=(1, 16), help="default: 1,16")
    parser.add_argument("--seconds", type=float, default=5.0, help="of pairs in each run; half for the rest")
    parser.add_argument("--rounds", type=count, default=3, help="runs of each scenario, in turns")
    parser.add_argument("--folder", type=Path, help="where the databases lie; default: the temporary folder")
    parser.add_argument("--out", type=Path, default=Path("var/bench-ledger"), help="folder for the report")
    return parser.parse_args(words)


def _databases(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := [name for name in names if name not in DATABASES]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is neither sqlite nor postgresql")
    return names


def _postgres_url(text: str) -> str:
    try:
        backend = parse_url(text).get_backend_name()
    except BillingError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if backend != "postgresql":
        raise argparse.ArgumentTypeError(f"{backend} is not postgresql")
    return text


def scenarios(options: argparse.Namespace) -> list[Scenario]:
    """One with fewer clients than workspaces would leave workspaces idle, and is another one's twin."""
    found = [
        Scenario(database, clients, workspaces)
        for database in options.databases
        for workspaces in options.workspaces
        for clients in options.clients
        if clients >= workspaces
    ]
    if not found:
        raise SystemExit("--clients, --workspaces: every number of workspaces is above the number of clients")
    return found


async def measure(
    urls: dict[str, str], spools: Path, options: argparse.Namespace
) -> dict[Scenario, list[Samples]]:
    """Every scenario once in each round, so that what else the machine does meets all alike."""
    runs: dict[Scenario, list[Samples]] = {scenario: [] for scenario in scenarios(options)}
    for url in urls.values():
        await upgrade(url)
    with bars() as progress:
        task = progress.add_task("", total=len(runs) * options.rounds)
        for scenario in [*runs] * options.rounds:
            progress.update(task, description=str(scenario))
            busy = await cpu_percent()
            samples = await run(scenario, urls[scenario.database], spools, options.seconds)
            samples.cpu_percent_before = busy
            runs[scenario].append(samples)
            progress.advance(task)
    return runs


async def cpu_percent() -> float:
    psutil.cpu_percent()
    await asyncio.sleep(0.5)
    return psutil.cpu_percent()


async def run(scenario: Scenario, url: str, spools: Path, seconds: float) -> Samples:
    # Connections of its own, as a server that has just started.
    database = open_database(url)
    spool = Spool(spools / "spool.db")
    ledger = Ledger(database, spool)
    try:
        bench = Bench(database, ledger)
        await bench.prepare()
        return await bench.run(clients=scenario.clients, workspaces=scenario.workspaces, seconds=seconds)
    finally:
        await ledger.close()
        await spool.close()
        await database.close()


def main() -> None:
    options, facts = arguments(), report.facts()
    try:
        folder, runs = measured(options)
    except PostgresNotFound as error:
        raise SystemExit(f"{error}, or name a database with --url, or give --databases sqlite") from error
    except (BadRun, BillingError) as error:
        raise SystemExit(f"nothing to report, since the ledger failed: {error}") from error
    report.report(facts, folder, runs).publish(options.out)


def measured(options: argparse.Namespace) -> tuple[Path, dict[Scenario, list[Samples]]]:
    """The folder that the databases were in, and every run. Raises `PostgresNotFound`, `BadRun` or an error of
    the ledger."""
    with ExitStack() as stack:
        own = tempfile.TemporaryDirectory(prefix="pith-bench-", dir=options.folder)
        folder = Path(stack.enter_context(own))
        urls = {"sqlite": f"sqlite:///{folder / 'ledger.db'}", "postgresql": options.url}
        if "postgresql" in options.databases and not options.url:
            server = stack.enter_context(private_postgres(fsync=True, folder=options.folder))
            urls["postgresql"] = f"{server}/postgres"
        wanted = {name: urls[name] for name in options.databases}
        runs = uvloop.run(measure(wanted, folder, options))
    return folder.parent, runs


if __name__ == "__main__":
    main()
