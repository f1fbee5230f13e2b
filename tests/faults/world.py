"""All that one run needs: a ledger, a paying workspace with a key, and the servers that share a port."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import asyncpg

from billing.accounts import Accounts
from billing.caller import NO_LIMITS, ProjectLimits
from billing.clock import now
from billing.database import open_database
from billing.lease.times import LeaseTimes
from billing.ledger import Ledger
from billing.migration import upgrade
from billing.spool import Spool
from serve.app import catalog_of
from serve.cluster.desk import open_desk
from serve.cluster.folder import run_folder
from serve.pepper import read_pepper
from serve.prepare import prices_of
from serve.settings import Settings
from tests.faults.audit import Books
from tests.faults.disk import SpoolDisk
from tests.faults.engine import witnessed_tokens
from tests.faults.ingress import Ingress, IngressPlan
from tests.faults.postgres import OwnPostgres, free_port
from tests.faults.prices import PRICES
from tests.faults.redis_server import OwnRedis

LedgerKind = Literal["sqlite", "postgresql"]
UPKEEP_S = 0.1


@dataclass(frozen=True)
class Setup:
    """How the servers of one run are configured."""

    ledger: LedgerKind
    ingresses: int = 1
    lease: LeaseTimes = field(default_factory=LeaseTimes)
    drain_s: int = 5
    token_s: float = 0.004
    database_timeout_s: float = 5.0
    limits: ProjectLimits = NO_LIMITS
    spend_limit_nano_usd: int | None = None
    on_redis: bool = False
    # One process keeps the port and counts the limits, as `pith serve` does; otherwise each server listens by itself.
    on_desk: bool = False
    # What the workspace may spend while the ledger is away.
    allowance_usd: str = "0"
    open_files: int | None = None


@dataclass
class Machines:
    """The database servers, which outlive a run, and the ledgers on them."""

    postgres: OwnPostgres | None = None
    redis: OwnRedis | None = None
    _migrated: dict[LedgerKind, str] = field(default_factory=dict)
    _folder: tempfile.TemporaryDirectory[str] = field(default_factory=tempfile.TemporaryDirectory)

    async def ledger_url(self, kind: LedgerKind, folder: Path) -> str:
        """A migrated ledger: on PostgreSQL the same for every run, on SQLite a new one in `folder`."""
        if kind == "postgresql":
            if kind not in self._migrated:
                self._migrated[kind] = await self._new_database()
            return self._migrated[kind]
        path = Path(self._folder.name) / "migrated.db"
        if not path.exists():
            await upgrade(f"sqlite:///{path}")
        (folder / "ledger.db").write_bytes(path.read_bytes())
        return f"sqlite:///{folder / 'ledger.db'}"

    def running_postgres(self) -> OwnPostgres:
        if self.postgres is None:
            self.postgres = OwnPostgres()
            self.postgres.start()
        return self.postgres

    def running_redis(self) -> OwnRedis:
        if self.redis is None:
            self.redis = OwnRedis()
            self.redis.start()
        return self.redis

    def close(self) -> None:
        if self.postgres is not None:
            self.postgres.close()
        if self.redis is not None:
            self.redis.close()
        self._folder.cleanup()

    async def _new_database(self) -> str:
        server = self.running_postgres()
        name = f"faults_{uuid4().hex}"
        connection = await asyncpg.connect(server.url("postgres").replace("+asyncpg", ""))
        try:
            await connection.execute(f"CREATE DATABASE {name}")
        finally:
            await connection.close()
        await upgrade(server.url(name))
        return server.url(name)


@dataclass
class World:
    """One run's world. `servers` are those that should be up."""

    setup: Setup
    folder: Path
    plan: IngressPlan
    machines: Machines
    workspace_id: str
    key: str
    servers: list[Ingress] = field(default_factory=list)
    disk: SpoolDisk | None = None

    @property
    def port(self) -> int:
        return self.plan.settings.server.port

    @property
    def pids(self) -> list[int]:
        return [server.process.pid for server in self.servers if server.process.pid is not None]

    def books(self) -> Books:
        """What the audit needs. Ask for it when the load has ended."""
        billing = self.plan.settings.billing
        generated = witnessed_tokens(self.folder)
        return Books(
            billing.database_url,
            billing.spool_path,
            self.workspace_id,
            PRICES,
            lambda request_id: generated.get(request_id, 0),
        )

    async def start_server(self) -> None:
        self.servers.append(await Ingress(self.plan).start())

    async def stop_servers(self) -> list[int]:
        """SIGTERM for all; their exit statuses."""
        for server in self.servers:
            server.terminate()
        return [await server.ended() for server in self.servers]


@asynccontextmanager
async def new_world(setup: Setup, machines: Machines, disk: SpoolDisk | None = None) -> AsyncIterator[World]:
    """A workspace and a running service. The servers are stopped at the end, and nothing of the run is kept."""
    with tempfile.TemporaryDirectory(prefix="pith-faults-") as name:
        folder = Path(name)
        url = await machines.ledger_url(setup.ledger, folder)
        settings = _settings(setup, folder, url, machines, disk)
        workspace_id, key = await _prepare(settings, setup)
        until = ExitStack()
        desk = until.enter_context(_desk_folder(settings)) if setup.on_desk else None
        plan = IngressPlan(
            settings,
            folder,
            setup.token_s,
            setup.database_timeout_s,
            setup.open_files,
            desk,
            setup.lease,
        )
        world = World(setup, folder, plan, machines, workspace_id, key, disk=disk)
        try:
            async with asyncio.TaskGroup() as starts:
                for _ in range(setup.ingresses):
                    starts.create_task(world.start_server())
            yield world
        finally:
            for server in world.servers:
                await server.kill()
            until.close()


@contextmanager
def _desk_folder(settings: Settings) -> Iterator[Path]:
    server = settings.server
    with (
        run_folder(settings.state_dir, server.port) as folder,
        open_desk(server.host, server.port, folder),
    ):
        yield folder


def _settings(setup: Setup, folder: Path, url: str, machines: Machines, disk: SpoolDisk | None) -> Settings:
    storage = machines.running_redis().url if setup.on_redis else "memory://"
    document: dict[str, Any] = {
        "state_dir": str(folder / "state"),
        "server": {
            "port": free_port(),
            "drain_s": setup.drain_s,
            "ingress_replicas": setup.ingresses,
        },
        "billing": {
            "database_url": url,
            "spool_path": str((disk.folder if disk else folder) / "spool.db"),
            "upkeep_s": UPKEEP_S,
            "rate_limit_storage": storage,
            "offline_allowance_usd": setup.allowance_usd,
        },
        "demo": {"enabled": False},
        "models": [_model(price.model) for price in PRICES.values()],
    }
    return Settings.model_validate(document)


def _model(model_id: str) -> dict[str, Any]:
    return {
        "id": model_id,
        "name": model_id.title(),
        "blurb": "A fake engine's model.",
        "checkpoint": "embedded:none",
        "context_length": 4096,
        "price": PRICES[model_id].document(),
    }


async def _prepare(settings: Settings, setup: Setup) -> tuple[str, str]:
    database = open_database(settings.billing.database_url)
    try:
        spool = Spool(settings.state_dir / "unused.db")
        await Ledger(database, spool).publish_prices(prices_of(catalog_of(settings), []), now=now())
        accounts = Accounts(database, pepper=read_pepper(settings.state_dir))
        moment = datetime.now(UTC)
        workspace = await accounts.create_workspace(
            f"run {uuid4().hex}", spend_limit_nano_usd=setup.spend_limit_nano_usd, now=moment
        )
        project = await accounts.create_project(workspace.id, "main", limits=setup.limits, now=moment)
        _, key = await accounts.create_key(project.id, "key", now=moment)
        return workspace.id, key
    finally:
        await database.close()
