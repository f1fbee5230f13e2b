"""What 1, 2 and 4 ingress replicas reach on one port, one ledger and one Redis, and what a model says of more cores.

    python -m tests.ingress_scale [--ledgers sqlite,postgresql] [--replicas 1,2,4] [--rounds 3]

Each ingress is the real HTTP server on a canned engine that takes --delay-ms; the load is JSON of 16 tokens in a closed
loop. Every reply must be settled, and at the end the ledger must have exactly one event for each request and add up, or
nothing is reported. PostgreSQL and Redis are started here; fsync is on.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median

import psutil
import uvloop

from benchmarks import scaling
from benchmarks.ledger.postgres_server import private_postgres
from benchmarks.load import machine, plots
from benchmarks.load.arguments import count, counts, positive
from benchmarks.load.report import Report, table
from benchmarks.load.sample import percentile
from tests.faults.redis_server import OwnRedis
from tests.ingress_cost.load import Slice, run_slice
from tests.ingress_scale.fleet import Fleet, prepared, running, settings_of, wrong_in_the_books
from tests.ingress_scale.model import Measured, Model, model_of

OTHER_CORES = (2, 4, 8, 16)
PACKAGES = ("pith", "uvicorn", "uvloop", "sqlalchemy", "asyncpg", "redis")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ledgers", default="sqlite,postgresql")
    parser.add_argument("--replicas", type=counts, default=(1, 2, 4))
    parser.add_argument(
        "--clients", type=count, default=192, help="kept connections, which the kernel spreads"
    )
    parser.add_argument("--workspaces", type=count, default=16, help="1: every write changes the same row")
    parser.add_argument("--requests", type=count, default=4000, help="in a measurement")
    parser.add_argument(
        "--rounds", type=count, default=3, help="measurements of each number of replicas, in turns"
    )
    parser.add_argument("--delay-ms", type=positive, default=10.0, help="of the engine, for every reply")
    parser.add_argument("--out", type=Path, default=Path("var/bench-scale"), help="folder for the report")
    return parser.parse_args()


async def load(fleet: Fleet, given: argparse.Namespace, requests: int) -> Slice:
    """Every workspace's share of the requests, sent by its share of the clients."""
    shares = len(fleet.keys)
    began = time.perf_counter()
    slices = await asyncio.gather(
        *(
            run_slice("json", fleet.port, key, requests=requests // shares, clients=given.clients // shares)
            for key in fleet.keys
        )
    )
    return Slice([one for each in slices for one in each.latencies_s], time.perf_counter() - began)


async def sample(fleet: Fleet, given: argparse.Namespace) -> Measured:
    """One measurement, after a quarter of its requests to warm up."""
    await load(fleet, given, given.requests // 4)
    cpu, writers = fleet.cpu_s(), [one.writer() for one in fleet.ingresses]
    seen = await load(fleet, given, given.requests)
    after, requests = fleet.cpu_s(), len(seen.latencies_s)
    wrote = {
        name: sum(
            one.writer()[name] - before[name] for one, before in zip(fleet.ingresses, writers, strict=True)
        )
        if fleet.is_on_sqlite
        else 0.0
        for name in ("seconds", "cpu_seconds", "transactions", "jobs")
    }
    milliseconds = sorted(1000 * one for one in seen.latencies_s)
    return Measured(
        replicas=len(fleet.ingresses),
        requests_per_s=requests / seen.wall_s,
        cpu_ms={role: 1000 * (after[role] - cpu[role]) / requests for role in cpu},
        p50_ms=percentile(milliseconds, 50),
        p99_ms=percentile(milliseconds, 99),
        writer_ms=1000 * wrote["seconds"] / requests,
        writer_cpu_ms=1000 * wrote["cpu_seconds"] / requests,
        group=wrote["jobs"] / wrote["transactions"] if wrote["transactions"] else 0.0,
    )


async def measured(
    given: argparse.Namespace, url: str, servers: dict[str, int], redis_url: str
) -> list[Measured]:
    """The medians for each number of replicas. Raises `RuntimeError` where a request or the books went wrong."""
    taken: dict[int, list[Measured]] = {replicas: [] for replicas in given.replicas}
    with tempfile.TemporaryDirectory(prefix="pith-scale-") as name:
        folder = Path(name)
        database_url = url or f"sqlite:///{folder / 'ledger.db'}"
        books = settings_of(folder, database_url, redis_url, 1)
        keys = await prepared(books, given.workspaces)
        for turn in range(given.rounds):
            for replicas in given.replicas if turn % 2 == 0 else reversed(given.replicas):
                with running(
                    folder, replicas=replicas, delay_s=given.delay_ms / 1000, database_url=database_url,
                    redis_url=redis_url, servers=servers, keys=keys,
                ) as fleet:  # fmt: skip
                    taken[replicas].append(await sample(fleet, given))
                    if complaints := fleet.complaints():
                        raise RuntimeError(f"{replicas} replicas: {complaints[0]}")
        shares = given.requests // given.workspaces + given.requests // 4 // given.workspaces
        sent = shares * given.workspaces * given.rounds * len(given.replicas)
        if wrong := await wrong_in_the_books(books, sent):
            raise RuntimeError(f"the ledger after {sent:,} requests: {'; '.join(wrong)}")
    return [middle(samples) for samples in taken.values()]


def middle(samples: list[Measured]) -> Measured:
    """The medians of several measurements of the same."""
    fields = ("requests_per_s", "p50_ms", "p99_ms", "writer_ms", "writer_cpu_ms", "group")
    medians = {name: median(getattr(one, name) for one in samples) for name in fields}
    cpu_ms = {role: median(one.cpu_ms[role] for one in samples) for role in samples[0].cpu_ms}
    return Measured(replicas=samples[0].replicas, cpu_ms=cpu_ms, **medians)


@contextmanager
def database(kind: str) -> Iterator[tuple[str, dict[str, int]]]:
    """The URL of a new database on a server of its own ("" for a file), and the server's process by role."""
    if kind == "sqlite":
        yield "", {}
        return
    with private_postgres(fsync=True) as prefix:
        yield f"{prefix}/postgres", {"database": listening(int(prefix.rpartition(":")[2]))}


def listening(port: int) -> int:
    """The process that listens there."""
    found = [
        one.pid
        for one in psutil.net_connections("tcp")
        if one.pid is not None and one.status == psutil.CONN_LISTEN and one.laddr[1] == port
    ]
    return found[0]


def lines_of(kind: str, found: list[Measured], cores: float) -> list[str]:
    model = model_of(found[0])
    rows = [
        [
            f"{one.replicas}",
            f"{one.requests_per_s:,.0f}",
            "measured"
            if one is found[0]
            else "{:,.0f} ({})".format(*model.requests_per_s(one.replicas, cores)),
            f"{one.p50_ms:.1f} / {one.p99_ms:.1f}",
            *(f"{one.cpu_ms[role]:.2f}" for role in one.cpu_ms),
            *(
                [f"{one.writer_ms:.2f} ({one.writer_cpu_ms:.2f})", f"{one.group:.1f}"]
                if one.writer_ms
                else []
            ),
        ]
        for one in found
    ]
    head = ["replicas", "requests/s", f"model, {cores:g} cores", "p50 / p99 ms"]
    head += [f"{role}, CPU ms" for role in found[0].cpu_ms]
    head += ["in SQLite's transactions, ms (CPU)", "writes a commit"] if found[0].writer_ms else []
    return [f"## {kind}", "", *table(head, rows), "", *modelled(model, [one.replicas for one in found]), ""]


def modelled(model: Model, replicas: list[int]) -> list[str]:
    rows = [
        [f"{n}", *("{:,.0f} ({})".format(*model.requests_per_s(n, cores)) for cores in OTHER_CORES)]
        for n in replicas
    ]
    return table(["replicas, modelled", *(f"{cores} cores" for cores in OTHER_CORES)], rows)


NAMES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}


def drawn(found: Mapping[str, list[Measured]], cores: float) -> plots.Picture:
    measured = {
        NAMES[kind]: [(float(one.replicas), one.requests_per_s) for one in points]
        for kind, points in found.items()
    }
    modelled = {
        NAMES[kind]: {
            each: [
                (float(one.replicas), model_of(points[0]).requests_per_s(one.replicas, each)[0])
                for one in points
            ]
            for each in OTHER_CORES
        }
        for kind, points in found.items()
    }
    return scaling.picture(measured, modelled, cores)


async def run(given: argparse.Namespace) -> dict[str, list[Measured]]:
    found = {}
    with closing(OwnRedis()) as redis:
        redis.start()
        for kind in given.ledgers.split(","):
            with database(kind) as (url, servers):
                roles = {**servers, "Redis": listening(redis.port)}
                found[kind] = await measured(given, url, roles, redis.url)
    return found


def main() -> None:
    given, cores = arguments(), float(psutil.cpu_count() or 1)
    facts = machine.facts("tests.ingress_scale", packages=PACKAGES)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(run(given))
    lines = [
        f"{given.clients} clients of {given.workspaces} workspaces, JSON of 16 tokens, an engine that takes "
        f"{given.delay_ms:g} ms; medians of {given.rounds} measurements of {given.requests:,} requests. CPU is "
        "milliseconds a request.", "",
    ]  # fmt: skip
    for kind, points in found.items():
        lines += lines_of(kind, points, cores)
    body = {kind: [asdict(one) for one in points] for kind, points in found.items()}
    Report("scale", "Ingress replicas", facts, lines, body, {"scale": drawn(found, cores)}).publish(given.out)


if __name__ == "__main__":
    main()
