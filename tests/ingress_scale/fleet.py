"""Several ingress processes on one port, one ledger and one Redis, and what is left in the ledger after the load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import text

from billing.accounts.accounts import Accounts
from billing.books import invariants
from billing.caller import ProjectLimits
from billing.ledger.spool import Spool
from billing.store.database import open_database
from billing.usage import now
from serve.catalog.offered import catalog_of
from serve.config.settings import Settings
from serve.money.ledger_setup import prepare_ledger, read_pepper
from tests.faults.postgres import free_port
from tests.ingress_cost.server import MODEL, PRICE

ROOT = Path(__file__).parents[2]
SERVER = Path(__file__).parent / "server.py"
STOP_S = 15.0
# Never reached, so that every request is counted in Redis and none is refused.
WIDE = ProjectLimits(requests_per_minute=10**9, tokens_per_minute=10**12, max_in_flight=10**6)


@dataclass
class Ingress:
    """One process. What it says on standard error is kept."""

    process: subprocess.Popen[str]
    log: Path

    def cpu_s(self) -> float:
        """Of all its threads since its start, user and system."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(path.read_text().split()[0]) / 1e9 for path in tasks)

    def writer(self) -> dict[str, float]:
        """Seconds, transactions and jobs of its SQLite writer since its start."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        told: dict[str, float] = json.loads(self.process.stdout.readline())
        return told


@dataclass
class Fleet:
    """Started ingress processes. `servers` are the processes of the database and of Redis."""

    settings: Settings
    keys: Sequence[str]
    folder: Path
    servers: dict[str, int]
    ingresses: list[Ingress] = field(default_factory=list)

    @property
    def is_on_sqlite(self) -> bool:
        return self.settings.billing.database_url.startswith("sqlite:")

    @property
    def port(self) -> int:
        return self.settings.server.port

    def cpu_s(self) -> dict[str, float]:
        """By role: the ingress processes, the database's processes, Redis, and this one, which sends the requests."""
        own = os.times()
        found = {
            "ingress": sum(one.cpu_s() for one in self.ingresses),
            "load generator": own.user + own.system,
        }
        for role, pid in self.servers.items():
            root = psutil.Process(pid)
            family = [root, *root.children(recursive=True)]
            found[role] = sum(sum(one.cpu_times()[:2]) for one in family)
        return found

    def complaints(self) -> list[str]:
        """Lines of the logs that tell of a ledger or limits that did not answer."""
        words = ("locked", "unavailable", "spool", "Traceback")
        lines = [line for one in self.ingresses for line in one.log.read_text().splitlines()]
        return [line for line in lines if any(word in line for word in words)]


@contextmanager
def running(
    folder: Path,
    *,
    replicas: int,
    delay_s: float,
    database_url: str,
    redis_url: str,
    servers: dict[str, int],
    keys: Sequence[str],
) -> Iterator[Fleet]:
    """The processes, until the block ends. `keys` are of that ledger."""
    settings = settings_of(folder, database_url, redis_url, replicas)
    told = folder / f"settings-{replicas}.json"
    told.write_text(settings.model_dump_json(), encoding="utf-8")
    fleet = Fleet(settings, keys, folder, servers)
    try:
        for number in range(replicas):
            fleet.ingresses.append(_started(told, delay_s, folder / f"ingress-{number}.log"))
        for ingress in fleet.ingresses:
            assert ingress.process.stdout is not None
            said = ingress.process.stdout.readline()
            assert said == "up\n", ingress.log.read_text()
        yield fleet
    finally:
        for ingress in fleet.ingresses:
            ingress.process.terminate()
        for ingress in fleet.ingresses:
            ingress.process.communicate(timeout=STOP_S)


def _started(told: Path, delay_s: float, log: Path) -> Ingress:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, str(SERVER), str(told), str(delay_s)], cwd=ROOT, env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip
    return Ingress(process, log)


def settings_of(folder: Path, database_url: str, redis_url: str, replicas: int) -> Settings:
    model = {"name": "Canned", "blurb": "A fake.", "checkpoint": "embedded:none", "context_length": 4096}
    return Settings.model_validate(
        {
            "state_dir": str(folder / "state"),
            "server": {"port": free_port(), "ingress_replicas": replicas},
            "billing": {
                "database_url": database_url,
                "spool_path": str(folder / "spool.db"),
                "rate_limit_storage": redis_url,
            },
            "demo": {"enabled": False},
            "models": [
                {**model, "id": each, "price": PRICE} for each in (MODEL, "second", "third", "fourth")
            ],
        }
    )


async def prepared(settings: Settings, workspaces: int) -> list[str]:
    """A key of each of so many workspaces, with limits that are never reached, in a ledger that this makes ready."""
    await prepare_ledger(settings, catalog_of(settings), now=now())
    database = open_database(settings.billing.database_url)
    try:
        accounts = Accounts(database, pepper=read_pepper(settings.state_dir))
        keys = []
        for number in range(workspaces):
            workspace = await accounts.create_workspace(
                f"load-{number}", spend_limit_nano_usd=10**18, now=now()
            )
            project = await accounts.create_project(workspace.id, "main", limits=WIDE, now=now())
            keys.append((await accounts.keys.create(project.id, "key", now=now()))[1])
        return keys
    finally:
        await database.close()


async def wrong_in_the_books(settings: Settings, requests: int) -> list[str]:
    """What is not as it must be after so many requests that were all answered and settled."""
    database, spool = open_database(settings.billing.database_url), Spool(settings.billing.spool_path)

    async def one(sql: str) -> Any:
        return await database.read(lambda c: c.execute(text(sql)).scalar_one())

    try:
        found = {
            "usage events": (int(await one("SELECT count(*) FROM usage_events")), requests),
            "distinct requests": (
                int(await one("SELECT count(DISTINCT request_id) FROM usage_events")), requests
            ),
            "open holds": (int(await one("SELECT count(*) FROM holds")), 0),
            "held nano-USD": (int(await one("SELECT sum(held_nano_usd) FROM workspaces")), 0),
            "in the spool": (await spool.count_waiting() + await spool.count_refused(), 0),
            "differences": (len(await database.read(invariants.differences)), 0),
        }  # fmt: skip
    finally:
        await spool.close()
        await database.close()
    return [
        f"{what}: {is_now:,} instead of {wanted:,}"
        for what, (is_now, wanted) in found.items()
        if is_now != wanted
    ]
