"""Builds the HTTP service from its settings: the one place where collaborators meet, and the server they run in."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from billing.accounts.accounts import Accounts
from billing.accounts.key_cache import KeyCacheTimes
from billing.background.upkeep import Background, Round
from billing.ledger.leases import LeaseTimes
from billing.ledger.ledger import Ledger
from billing.ledger.recording import WrittenOff, log_written_off
from billing.ledger.spool import Spool
from billing.originals.original_store import OriginalStore
from billing.preservation.checks import PreservationStore
from billing.preservation.sizes import SizeStore
from billing.rate_limits.rate_limits import RateLimits
from billing.store.database import Database
from billing.usage import now
from billing.webhooks.limit_alerts import Refusals
from models.catalog import Catalog
from models.embedding_backends import RetrievalModel
from models.engine import Engine
from serve.account.proof import Prover
from serve.account.route import AccountReader
from serve.api import Services, create_api
from serve.batches.endpoints import Endpoints, endpoints_of
from serve.batches.wiring import BatchRoom, open_batches
from serve.catalog.offered import Away, ToldAgain, catalog_of, none_away, readiness, running_models
from serve.chat.service import ChatService
from serve.compress.demo import DemoLimits
from serve.compress.prompt import MessagesService
from serve.compress.route import CompressRoutes
from serve.compress.service import CompressService
from serve.compressors.compressor import RunningModel, served_compressors
from serve.config.settings import Settings
from serve.dialects.openai.responses.stored_responses import StoredResponses
from serve.http.server.server import PithServer, http_config
from serve.metrics.background import OriginalMetrics, TraceMetrics, UpkeepMetrics, WebhookMetrics
from serve.metrics.charged_requests import ServiceMetrics
from serve.metrics.counts import Counts
from serve.metrics.request_watch import Watch
from serve.money.admission import Admissions
from serve.money.ledger_setup import log_signer, prices_of, read_pepper, witness_key
from serve.money.prices import PriceBook
from serve.money.upkeep import begin_upkeep, open_webhooks
from serve.originals.originals import BYTES_PER_MB, Originals, Retention
from serve.playground.page_routes import about_of
from serve.processes.listener import ask_for_listener, own_listener
from serve.processes.process_setup import allow_open_files
from serve.processes.rate_limit_counters import open_limiter
from serve.processes.run_folder import COUNTERS_SOCKET
from serve.prompt_compression.compressing import BlockCompressor
from serve.prompt_compression.outcome import ResultCache
from serve.prompt_compression.service import PromptCompressor
from serve.prompt_compression.verifying import Verifier
from serve.prompt_compression.whole_chats import WholeChats
from serve.retrieval.service import RetrievalService, retrieval_service
from serve.tracing.request_record import NO_TRACER, Tracer, Tracing
from serve.transparency.log_reader import LogReader

DEMO_IN_FLIGHT = 2
BATCH_CONCURRENCY = 4


@dataclass(frozen=True, slots=True)
class Work:
    """The services behind the routes: compressions, where there are models for it, chats, and the rest."""

    compress: CompressRoutes | None
    chat: ChatService
    retrieval: RetrievalService

    def endpoints(self, catalog: Catalog) -> Endpoints:
        """For the lines of batches."""
        compress = self.compress.service if self.compress is not None else None
        return endpoints_of(catalog, self.chat, compress, self.retrieval)


def work_of(
    settings: Settings,
    catalog: Catalog,
    admissions: Admissions,
    metrics: ServiceMetrics,
    originals: Originals,
    database: Database,
    engines: Mapping[str, Engine],
    compressors: Mapping[str, RunningModel],
    retrievers: Mapping[str, RetrievalModel],
) -> Work:
    """From what was opened. `compressors` and `retrievers` are what runs of the configured models, by id."""
    served = served_compressors(settings.compression, compressors) if compressors else {}
    asked = settings.compression.chat
    blocks = BlockCompressor(
        ResultCache(asked.cache_mb * 2**20), asked.deadline_s, read_pepper(settings.state_dir)
    )
    compressor = PromptCompressor(
        models=served,
        blocks=blocks,
        metrics=metrics.compress,
        prompt_metrics=metrics.prompt_compression,
        originals=originals,
    )
    chat = ChatService(
        catalog=catalog,
        engines=engines,
        admissions=admissions,
        metrics=metrics.chat,
        compressor=compressor,
        verifier=Verifier(
            engines=engines,
            store=PreservationStore(database),
            metrics=metrics.preservation,
            whole=WholeChats(SizeStore(database), admissions.clock),
            is_on=asked.verify_engine_share > 0,
            clock=admissions.clock,
        ),
        tiers=settings.billing.tiers_ppm,
    )
    compress = _compress_routes(settings, compressor, admissions) if served else None
    return Work(compress, chat, retrieval_service(settings, retrievers, admissions, metrics.retrieval))


def _compress_routes(
    settings: Settings,
    compressor: PromptCompressor,
    admissions: Admissions,
) -> CompressRoutes:
    demo = settings.compression.demo
    return CompressRoutes(
        messages=MessagesService(compressor, admissions),
        service=CompressService(
            models=compressor.models,
            admissions=admissions,
            metrics=compressor.metrics,
            originals=compressor.originals,
        ),
        demo=DemoLimits(
            admissions.limiter,
            requests_per_minute_per_address=demo.requests_per_minute_per_address,
            requests_per_minute=demo.requests_per_minute,
            max_in_flight=DEMO_IN_FLIGHT,
            clock=admissions.clock,
        ),
        demo_max_chars=demo.max_chars,
        batch_concurrency=BATCH_CONCURRENCY,
        demo_deadline_s=demo.deadline_s,
    )


# For clients that keep their connections and ask again soon: of the drain time this part, and no more than that.
FAREWELL_PART, FAREWELL_S, LOOK_AGAIN_S = 0.5, 2.0, 0.02


@dataclass(slots=True)
class Service:
    """The running HTTP server of one ingress replica."""

    server: PithServer
    task: asyncio.Task[None]
    background: Background
    batches: BatchRoom
    verifier: Verifier
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

    def retire(self) -> tuple[int, int]:
        """Leave new connections and lines of batches to other processes, and see off those that there are, as
        `PithServer.retire` does; lines count as requests."""
        lines = self.batches.retire()
        idle, working = self.server.retire()
        return idle, working + lines

    async def stop(self) -> None:
        """Take no more requests, let the running ones end within the drain time, and close the ledger."""
        await self._see_off()
        self.server.should_exit = True
        # The requests that are left end first: their holds are renewed until then.
        await asyncio.gather(self.task, return_exceptions=True)
        await self.background.stop()
        await self.verifier.close()
        await self.limiter.close()
        await self.ledger.close()
        await self.spool.close()
        await self.database.close()
        for close in self.closing:
            await close()

    async def _see_off(self) -> None:
        """Give clients that ask again on their connections a moment to hear that these end: closed without a word, a
        request could be on its way."""
        drain_s = self.server.config.timeout_graceful_shutdown or 0
        loop = asyncio.get_running_loop()
        began = loop.time()
        until = began + min(FAREWELL_S, FAREWELL_PART * drain_s)
        # A reply that runs may have begun without saying so: the next one on its connection does.
        while loop.time() < until and self.server.started and any(self.retire()):
            await asyncio.sleep(LOOK_AGAIN_S)
            # What this takes is taken from the time for what runs.
            left_s = max(0.0, drain_s - (loop.time() - began))
            self.server.config.timeout_graceful_shutdown = left_s  # type: ignore[assignment]


def start_service(
    settings: Settings,
    *,
    engines: Mapping[str, Engine],
    compressors: Mapping[str, RunningModel],
    retrievers: Mapping[str, RetrievalModel],
    database: Database,
    run_folder: Path | None = None,
    lease: LeaseTimes | None = None,
    counts: Counts | None = None,
    ask_away: Away = none_away,
) -> Service:
    """Take requests, with these engines behind the API. To be called in the event loop that serves.

    `run_folder` has the coordinator's sockets; without one, this process opens a listening socket of its own. Raises
    `NoListener` or `OSError`.
    """
    server = settings.server
    listener = ask_for_listener(run_folder) if run_folder else own_listener(server.host, server.port)
    counts = counts or Counts()
    upkeep = UpkeepMetrics(counts)
    tracing = Tracing(settings.tracing, TraceMetrics(counts))
    spool = Spool(settings.billing.spool_path, max_rows=settings.billing.spool_max_rows)
    ledger = open_ledger(settings, database, spool, lease=lease, written_off=upkeep.write_off)
    limiter = open_limiter(settings, database, run_folder and run_folder / COUNTERS_SOCKET)
    refusals = Refusals()
    accounts = _accounts(settings, database)
    api, batches, verifier = build_service(
        settings,
        accounts=accounts,
        engines=engines,
        compressors=compressors,
        retrievers=retrievers,
        database=database,
        ledger=ledger,
        limiter=limiter,
        lease=lease,
        counts=counts,
        refusals=refusals,
        tracer=tracing.tracer,
        ask_away=ask_away,
    )
    allow_open_files()
    http = PithServer(http_config(api, settings), listener)
    task = asyncio.create_task(http.serve())
    webhooks = open_webhooks(settings, database, refusals, WebhookMetrics(counts))
    rounds = [*batches.rounds(upkeep_s=settings.billing.upkeep_s), *webhooks.rounds()]
    rounds += [Round("key_uses", accounts.note_uses, settings.billing.upkeep_s), verifier.whole.round]
    times = lease or LeaseTimes()
    background = begin_upkeep(settings, database, ledger, times, upkeep, rounds, tracing.tracer)
    closing: list[Callable[[], Awaitable[None]]] = [webhooks.close, tracing.close]
    return Service(http, task, background, batches, verifier, ledger, spool, database, limiter, closing)


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


def open_originals(settings: Settings, database: Database, metrics: OriginalMetrics) -> Originals:
    """The originals that requests have kept, in the ledger's database."""
    retention = settings.compression.retention
    return Originals(
        OriginalStore(database),
        pepper=read_pepper(settings.state_dir),
        retention=Retention(retention.max_s, retention.max_mb_per_project * BYTES_PER_MB),
        metrics=metrics,
    )


def build_api(settings: Settings, **collaborators: Any) -> Any:
    """The ASGI application alone, as `build_service` gives it."""
    return build_service(settings, **collaborators)[0]


def build_service(
    settings: Settings,
    *,
    engines: Mapping[str, Engine],
    database: Database,
    ledger: Ledger,
    limiter: RateLimits | None = None,
    accounts: Accounts | None = None,
    compressors: Mapping[str, RunningModel] | None = None,
    retrievers: Mapping[str, RetrievalModel] | None = None,
    counts: Counts | None = None,
    lease: LeaseTimes | None = None,
    refusals: Refusals | None = None,
    tracer: Tracer = NO_TRACER,
    ask_away: Away = none_away,
) -> tuple[Any, BatchRoom, Verifier]:
    """The ASGI application, batches with their work in the background, and checks of compressed chats with theirs, from
    settings, engines, compression models and a ledger. Without compression models there are no compression routes.
    `counts`: those of this process; `ask_away`: which models cannot be started."""
    catalog = catalog_of(settings)
    metrics = _metrics(settings, counts or Counts())
    limiter = limiter or open_limiter(settings, database)
    admissions = _admissions(settings, catalog, ledger, limiter, refusals)
    originals = open_originals(settings, database, metrics.originals)
    compressors = compressors or {}
    rooms = (metrics, originals, database, engines, compressors, retrievers or {})
    work = work_of(settings, catalog, admissions, *rooms)
    accounts = accounts or _accounts(settings, database)
    endpoints, lease_s = work.endpoints(catalog), (lease or LeaseTimes()).batch_s
    batches = open_batches(
        settings, database, endpoints, accounts, admissions, lease_s=lease_s, tracer=tracer
    )
    running, away = running_models(engines, compressors), ToldAgain[Collection[str]](ask_away, ())
    about = about_of(settings, catalog, compresses=work.compress is not None, running=running.now)
    services = Services(
        catalog=catalog,
        chat=work.chat,
        accounts=accounts,
        limiter=limiter,
        prices=admissions.prices,
        ready=readiness(settings, engines, compressors, retrievers or {}, away.now),
        away=away.now,
        metrics=metrics.http,
        clock=now,
        max_body_bytes=settings.server.max_body_bytes,
        collection_threshold_cents=settings.billing.collection_threshold_cents,
        compress=work.compress,
        batches=batches,
        retrieval=work.retrieval,
        responses=StoredResponses(originals, store_s=settings.responses.store_s),
        playground=about if settings.server.playground else None,
        account=AccountReader(database, Prover(database, log_signer(settings), witness_key(settings), now)),
        log=LogReader(database),
        cors_origins=settings.server.cors_origins,
        watch=Watch.of(settings.logs, settings.tracing, tracer),
    )
    return create_api(services), batches, work.chat.verifier


def _admissions(
    settings: Settings, catalog: Catalog, ledger: Ledger, limiter: RateLimits, refusals: Refusals | None
) -> Admissions:
    prices = prices_of(catalog, settings.compression.models, settings.retrieval_models)
    return Admissions(
        prices=PriceBook(ledger, prices),
        ledger=ledger,
        limiter=limiter,
        clock=now,
        refusals=refusals or Refusals(),
        signer=log_signer(settings),
    )


def _metrics(settings: Settings, counts: Counts) -> ServiceMetrics:
    return ServiceMetrics(
        counts,
        chat_models=[model.id for model in settings.models],
        compression_models=[model.id for model in settings.compression.models],
        retrieval_models=[model.id for model in settings.retrieval_models],
    )


def _accounts(settings: Settings, database: Database) -> Accounts:
    billing = settings.billing
    cache_times = KeyCacheTimes(ttl_s=billing.key_cache_s, outage_s=billing.key_outage_s)
    return Accounts(database, pepper=read_pepper(settings.state_dir), cache_times=cache_times)
