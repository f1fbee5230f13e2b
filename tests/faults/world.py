"""All that one run needs: a ledger, a paying workspace with a key, and the servers that share a port."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import asyncpg

from billing.accounts.accounts import Accounts
from billing.caller import NO_LIMITS, ProjectLimits
from billing.ledger.leases import LeaseTimes
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.store.database import open_database
from billing.store.migration import upgrade
from billing.usage import now
from serve.catalog.offered import catalog_of
from serve.config.settings import Settings
from serve.money.ledger_setup import prices_of, read_pepper
from serve.processes.coordinator import open_coordinator
from serve.processes.run_folder import run_folder
from tests.faults.audit import Books
from tests.faults.client import SQUEEZED
from tests.faults.disk import SpoolDisk
from tests.faults.engine import witnessed_tokens
from tests.faults.hook import HOOK_S, write_hook
from tests.faults.ingress import Ingress, IngressPlan
from tests.faults.ledger_link import set_clock, set_wall_clock
from tests.faults.postgres import OwnPostgres, free_port
from tests.faults.prices import COMPRESSION_PRICES, COUNTED_COMPRESSION_PRICE, PRICES, PinnedPrice
from tests.faults.redis_server import OwnRedis
from tests.faults.slow_link import SlowLink, slow_link
from tests.migrated import migrated_file

LedgerKind = Literal["sqlite", "postgresql"]
UPKEEP_S = 0.1
# What is not compressed by then is sent whole.
PROMPT_DEADLINE_S = 0.5
# Short, so that a client that takes nothing is cut off within the run.
SEND_TIMEOUT_S = 0.7
POSTGRES_CLOCK = """CREATE OR REPLACE FUNCTION pith_now() RETURNS double precision LANGUAGE sql VOLATILE AS
$$ SELECT extract(epoch FROM clock_timestamp())::double precision + ({ahead_s}) $$"""


@dataclass(frozen=True)
class Setup:
    """How the servers of one run are configured."""

    ledger: LedgerKind
    ingresses: int = 1
    lease: LeaseTimes = field(default_factory=LeaseTimes)
    drain_s: int = 5
    token_s: float = 0.004
    database_timeout_s: float = 30.0
    limits: ProjectLimits = NO_LIMITS
    spend_limit_nano_usd: int | None = None
    on_redis: bool = False
    # One process keeps the port and counts the limits, as `pith serve` does; otherwise each server listens by itself.
    with_coordinator: bool = False
    # What the workspace may spend while the ledger is away.
    allowance_usd: str = "0"
    # Further workspaces, by their limits: in all, and of a month.
    others: tuple[tuple[int | None, int | None], ...] = ()
    # Each server has a spool of its own, as on machines of their own.
    own_spools: bool = False
    # What is uncollected is cut at a cent, and handed to a payment system that fails.
    collects: bool = False
    open_files: int | None = None
    # The servers reach PostgreSQL, or Redis, by a link that may be slow.
    slow_link: Literal["", "ledger", "redis"] = ""


@dataclass(frozen=True)
class Customer:
    """A workspace with a key of its own."""

    workspace_id: str
    key: str


@dataclass
class Machines:
    """The database servers, which outlive a run, and the ledgers on them."""

    postgres: OwnPostgres | None = None
    redis: OwnRedis | None = None
    _migrated: dict[LedgerKind, str] = field(default_factory=dict)

    async def ledger_url(self, kind: LedgerKind, folder: Path) -> str:
        """A migrated ledger: on PostgreSQL the same for every run, on SQLite a new one in `folder`."""
        if kind == "postgresql":
            if kind not in self._migrated:
                self._migrated[kind] = await self._new_database()
            return self._migrated[kind]
        (folder / "ledger.db").write_bytes(await migrated_file())
        return f"sqlite:///{folder / 'ledger.db'}"

    def running_postgres(self) -> OwnPostgres:
        if self.postgres is None:
            self.postgres = OwnPostgres()
            self.postgres.start()
        return self.postgres

    async def set_postgres_clock(self, url: str, ahead_s: float) -> None:
        """The clock of this database, as the ledger asks for it."""
        connection = await asyncpg.connect(url.replace("+asyncpg", ""))
        try:
            await connection.execute(POSTGRES_CLOCK.format(ahead_s=ahead_s))
        finally:
            await connection.close()

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
    customers: Sequence[Customer]
    servers: list[Ingress] = field(default_factory=list)
    disk: SpoolDisk | None = None
    link: SlowLink | None = None
    # What its servers are made with.
    ingress: Callable[[IngressPlan], Ingress] = Ingress
    _starting: list[Path] = field(default_factory=list)

    @property
    def key(self) -> str:
        return self.customers[0].key

    @property
    def workspace_id(self) -> str:
        return self.customers[0].workspace_id

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
            self._spool_paths(),
            [customer.workspace_id for customer in self.customers],
            {**PRICES, **COMPRESSION_PRICES},
            lambda request_id: generated.get(request_id, 0),
            self.folder if self.setup.collects else None,
        )

    async def start_server(self) -> None:
        """One more; it takes over the spool of one that has gone."""
        self.servers.append(await self.ingress(self._next_plan()).start())

    def _next_plan(self) -> IngressPlan:
        path = self._free_spool()
        settings = self.plan.settings
        billing = settings.billing.model_copy(update={"spool_path": path})
        return replace(self.plan, settings=settings.model_copy(update={"billing": billing}))

    def _free_spool(self) -> Path:
        taken = [*self._starting, *(server.plan.settings.billing.spool_path for server in self.servers)]
        path = next((path for path in self._spool_paths() if path not in taken), self._spool_paths()[0])
        self._starting.append(path)
        if len(self._starting) == self.setup.ingresses:
            self._starting.clear()
        return path

    def _spool_paths(self) -> list[Path]:
        path = self.plan.settings.billing.spool_path
        if not self.setup.own_spools:
            return [path]
        return [path.with_name(f"spool-{number}.db") for number in range(self.setup.ingresses)]

    async def set_clock(self, ahead_s: float) -> None:
        """From now on the ledger's clock is so far ahead."""
        if self.setup.ledger == "sqlite":
            set_clock(self.folder, ahead_s)
        else:
            await self.machines.set_postgres_clock(self.plan.settings.billing.database_url, ahead_s)

    async def set_all_clocks(self, ahead_s: float) -> None:
        """The clocks of the servers' processes, and of their ledger."""
        set_wall_clock(self.folder, ahead_s)
        if self.setup.ledger == "postgresql":
            await self.set_clock(ahead_s)

    async def stop_servers(self) -> list[int]:
        """SIGTERM for all; their exit statuses."""
        for server in self.servers:
            server.terminate()
        return [await server.ended() for server in self.servers]


@asynccontextmanager
async def new_world(
    setup: Setup,
    machines: Machines,
    disk: SpoolDisk | None = None,
    ingress: Callable[[IngressPlan], Ingress] = Ingress,
) -> AsyncIterator[World]:
    """A workspace and a running service. The servers are stopped at the end, and nothing of the run is kept."""
    with tempfile.TemporaryDirectory(prefix="pith-faults-") as name:
        folder = Path(name)
        url = await machines.ledger_url(setup.ledger, disk.folder if disk else folder)
        settings = _settings(setup, folder, url, machines, disk)
        customers = await _prepare(settings, setup)
        until = AsyncExitStack()
        link, linked = await _linked(settings, setup, machines, until)
        coordinator_folder = (
            until.enter_context(_coordinator_folder(settings)) if setup.with_coordinator else None
        )
        plan = IngressPlan(
            linked,
            folder,
            setup.token_s,
            setup.database_timeout_s,
            setup.open_files,
            coordinator_folder,
            setup.lease,
        )
        world = World(setup, folder, plan, machines, customers, disk=disk, link=link, ingress=ingress)
        try:
            await world.set_clock(0)
            async with asyncio.TaskGroup() as starts:
                for _ in range(setup.ingresses):
                    starts.create_task(world.start_server())
            yield world
        finally:
            for server in world.servers:
                await server.kill()
            await until.aclose()


async def _linked(
    settings: Settings, setup: Setup, machines: Machines, until: AsyncExitStack
) -> tuple[SlowLink | None, Settings]:
    """The link, where there is one, and the settings of servers that use it."""
    if setup.slow_link == "" or (setup.slow_link == "ledger" and setup.ledger == "sqlite"):
        return None, settings
    running = machines.running_postgres() if setup.slow_link == "ledger" else machines.running_redis()
    link = await until.enter_async_context(slow_link(running.port))
    key = "database_url" if setup.slow_link == "ledger" else "rate_limit_storage"
    url = str(getattr(settings.billing, key)).replace(f":{running.port}", f":{link.port}")
    return link, settings.model_copy(update={"billing": settings.billing.model_copy(update={key: url})})


@contextmanager
def _coordinator_folder(settings: Settings) -> Iterator[Path]:
    server = settings.server
    with (
        run_folder(settings.state_dir, server.port) as folder,
        open_coordinator(server.host, server.port, folder),
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
            "send_timeout_s": SEND_TIMEOUT_S,
        },
        "billing": {
            "database_url": url,
            "spool_path": str((disk.folder if disk else folder) / "spool.db"),
            "upkeep_s": UPKEEP_S,
            "rate_limit_storage": storage,
            "offline_allowance_usd": setup.allowance_usd,
            **(_collecting(folder) if setup.collects else {}),
        },
        "demo": {"enabled": False},
        "models": [_model(price.model) for price in PRICES.values()],
        "compression": {
            "models": [_compression_model(price) for price in COMPRESSION_PRICES.values()],
            "chat": {"deadline_s": PROMPT_DEADLINE_S},
        },
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


def _compression_model(price: PinnedPrice) -> dict[str, Any]:
    return {
        "id": price.model,
        "name": price.model.title(),
        "blurb": "A compressor that scores with BM25.",
        "kind": "lexical",
        "price_usd_per_mtok_input": price.input_usd_per_mtok,
        **({"tokenizer": "nobody/unknown"} if price is COUNTED_COMPRESSION_PRICE else {}),
    }


def _collecting(folder: Path) -> dict[str, Any]:
    return {
        "collection_threshold_cents": 1,
        "collection_hook": write_hook(folder),
        "collection_hook_timeout_s": HOOK_S,
    }


async def _prepare(settings: Settings, setup: Setup) -> list[Customer]:
    database = open_database(settings.billing.database_url)
    try:
        spool = Spool(settings.state_dir / "unused.db")
        prices = prices_of(catalog_of(settings), settings.compression.models)
        await Ledger(database, spool).publish_prices(prices, now=now())
        accounts = Accounts(database, pepper=read_pepper(settings.state_dir))
        limits = [(setup.spend_limit_nano_usd, None), *setup.others]
        return [await _new_customer(accounts, setup, *limit) for limit in limits]
    finally:
        await database.close()


async def _new_customer(
    accounts: Accounts, setup: Setup, spend_limit: int | None, monthly_limit: int | None
) -> Customer:
    moment = datetime.now(UTC)
    workspace = await accounts.create_workspace(
        f"run {uuid4().hex}",
        spend_limit_nano_usd=spend_limit,
        monthly_limit_nano_usd=monthly_limit,
        now=moment,
    )
    project = await accounts.create_project(
        workspace.id, "main", limits=setup.limits, compression=json.dumps(SQUEEZED), now=moment
    )
    _, key = await accounts.keys.create(project.id, "key", now=moment)
    return Customer(workspace.id, key)
