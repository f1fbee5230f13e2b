"""Builds the HTTP service from its settings: the one place where collaborators meet, and the server they run in."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from prometheus_client import CollectorRegistry

from billing.accounts.accounts import Accounts
from billing.accounts.key_cache import KeyCacheTimes
from billing.clock import now
from billing.leases.lease_times import LeaseTimes
from billing.ledger.ledger import Ledger
from billing.ledger.replay import WrittenOff, log_written_off
from billing.rate_limits.rate_limits import RateLimits, open_counters
from billing.spool.spool import Spool
from billing.store.database import Database
from billing.upkeep.background import Background
from models.catalog import Capabilities, Catalog, ChatModel
from models.engine import Engine
from serve.api import create_api
from serve.chat.service import ChatService
from serve.compress.wiring import RunningModel, compress_collaborators
from serve.config.chat_models import ModelSettings
from serve.config.settings import IN_MEMORY, Settings
from serve.http.server.server import PithServer, allow_open_files, http_config
from serve.metrics.service import ServiceMetrics
from serve.metrics.upkeep import UpkeepMetrics
from serve.money.admission import Admissions
from serve.money.ledger_setup import prices_of
from serve.money.pepper import read_pepper
from serve.money.price_book import PriceBook
from serve.money.upkeep import begin_upkeep
from serve.processes.listener import ask_for_listener, own_listener
from serve.processes.rate_limits.client import SharedCounters
from serve.processes.run_folder import COUNTERS_SOCKET


def catalog_of(settings: Settings) -> Catalog:
    """The catalog that callers see, from the configuration."""
    return Catalog(tuple(_chat_model(model, index == 0) for index, model in enumerate(settings.models)))


def _chat_model(model: ModelSettings, is_default: bool) -> ChatModel:
    capabilities = model.capabilities
    return ChatModel(
        id=model.id,
        name=model.name,
        blurb=model.blurb,
        context_length=model.context_length,
        input_micro_usd_per_mtok=int(model.price.input_usd_per_mtok * 10**6),
        output_micro_usd_per_mtok=int(model.price.output_usd_per_mtok * 10**6),
        minimum_nano_usd=int(model.price.minimum_request_usd * 10**9),
        is_default=is_default,
        capabilities=Capabilities(
            tools=capabilities.tools,
            reasoning_effort=capabilities.reasoning_effort,
            media=frozenset(capabilities.media),
            template_roles=frozenset(capabilities.template_roles),
            chat_template_kwargs=frozenset(capabilities.chat_template_kwargs),
        ),
    )


@dataclass(slots=True)
class Service:
    """The running HTTP server of one ingress replica."""

    server: uvicorn.Server
    task: asyncio.Task[None]
    background: Background
    ledger: Ledger
    spool: Spool
    database: Database
    limiter: RateLimits
    # What else is closed at the end.
    closing: list[Callable[[], Awaitable[None]]] = field(default_factory=list)

    def check(self) -> None:
        """Raise when the server has stopped or its upkeep hangs, so that Ray replaces this replica.

        Failing upkeep is not a reason: while the ledger is down, another replica would fail as well.
        """
        if self.task.done():
            raise RuntimeError("the HTTP server has stopped")
        self.background.check()

    async def stop(self) -> None:
        """Take no more requests, let the running ones end within the drain time, and close the ledger."""
        self.server.should_exit = True
        # The requests that are left end first: their holds are renewed until then.
        await asyncio.gather(self.task, return_exceptions=True)
        await self.background.stop()
        await self.limiter.close()
        await self.ledger.close()
        await self.spool.close()
        await self.database.close()
        for close in self.closing:
            await close()


def start_service(
    settings: Settings,
    *,
    engines: Mapping[str, Engine],
    compressors: Mapping[str, RunningModel],
    database: Database,
    run_folder: Path | None = None,
    lease: LeaseTimes | None = None,
) -> Service:
    """Take requests, with these engines behind the API. To be called in the event loop that serves.

    `run_folder` has the coordinator's sockets; without one, this process opens a listening socket of its own. Raises
    `NoListener` or `OSError`.
    """
    server = settings.server
    listener = ask_for_listener(run_folder) if run_folder else own_listener(server.host, server.port)
    upkeep = UpkeepMetrics(CollectorRegistry())
    spool = Spool(settings.billing.spool_path, max_rows=settings.billing.spool_max_rows)
    ledger = open_ledger(settings, database, spool, lease=lease, written_off=upkeep.write_off)
    limiter = open_limiter(settings, run_folder)
    api = build_api(
        settings, engines=engines, compressors=compressors, database=database, ledger=ledger, limiter=limiter
    )
    allow_open_files()
    http = PithServer(http_config(api, settings), listener)
    task = asyncio.create_task(http.serve())
    background = begin_upkeep(settings, database, ledger, lease or LeaseTimes(), upkeep)
    return Service(http, task, background, ledger, spool, database, limiter)


def open_ledger(
    settings: Settings,
    database: Database,
    spool: Spool,
    *,
    lease: LeaseTimes | None = None,
    written_off: WrittenOff = log_written_off,
) -> Ledger:
    """The ledger with what its settings allow while its database is down."""
    allowance = int(settings.billing.offline_allowance_usd * 10**9)
    return Ledger(database, spool, offline_allowance_nano_usd=allowance, lease=lease, written_off=written_off)


def open_limiter(settings: Settings, run_folder: Path | None = None) -> RateLimits:
    """The rate limits, counted where the settings say: `memory://` is the coordinator's, where there is one."""
    storage = settings.billing.rate_limit_storage
    counters = (
        SharedCounters(run_folder / COUNTERS_SOCKET)
        if run_folder and storage == IN_MEMORY
        else open_counters(storage)
    )
    return RateLimits(counters, on_outage=settings.billing.rate_limit_outage)


def build_api(
    settings: Settings,
    *,
    engines: Mapping[str, Engine],
    database: Database,
    ledger: Ledger,
    limiter: RateLimits | None = None,
    compressors: Mapping[str, RunningModel] | None = None,
    registry: CollectorRegistry | None = None,
) -> Any:
    """The ASGI application, from settings, engines, compression models and a ledger. Without compression models it has
    no compression routes. Give a `registry` to read the metrics in this process."""
    catalog = catalog_of(settings)
    metrics = _metrics(settings, registry or CollectorRegistry())
    prices = PriceBook(ledger, prices_of(catalog, settings.compression.models))
    limiter = limiter or open_limiter(settings)
    admissions = Admissions(prices=prices, ledger=ledger, limiter=limiter, clock=now)
    chat = ChatService(catalog=catalog, engines=engines, admissions=admissions, metrics=metrics.chat)
    compress = None
    if compressors:
        compress = compress_collaborators(
            settings.compression, compressors, admissions=admissions, metrics=metrics.compress
        )
    return create_api(
        catalog=catalog,
        chat=chat,
        accounts=_accounts(settings, database),
        limiter=limiter,
        prices=prices,
        ready=_readiness(settings, engines, compressors or {}),
        metrics=metrics.http,
        clock=now,
        max_body_bytes=settings.server.max_body_bytes,
        collection_threshold_cents=settings.billing.collection_threshold_cents,
        compress=compress,
    )


def _metrics(settings: Settings, registry: CollectorRegistry) -> ServiceMetrics:
    return ServiceMetrics(
        registry,
        chat_models=[model.id for model in settings.models],
        compression_models=[model.id for model in settings.compression.models],
    )


def _accounts(settings: Settings, database: Database) -> Accounts:
    billing = settings.billing
    cache_times = KeyCacheTimes(ttl_s=billing.key_cache_s, outage_s=billing.key_outage_s)
    return Accounts(database, pepper=read_pepper(settings.state_dir), cache_times=cache_times)


def _readiness(
    settings: Settings, engines: Mapping[str, Engine], compressors: Mapping[str, RunningModel]
) -> Callable[[], Awaitable[bool]]:
    """Whether the default chat model and the default compression model answer; one kept at 0 replicas counts as up."""
    default = settings.models[0]
    first = next(iter(settings.compression.models), None)

    async def ready() -> bool:
        up = default.replicas.min == 0 or await engines[default.id].ready()
        if not up or not compressors or first is None or first.replicas.min == 0:
            return up
        return await compressors[first.id].ready()

    return ready
