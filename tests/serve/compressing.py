"""The compression routes without Ray: the real API and ledger, a real compressor that scores with BM25, and fakes of
what can go wrong with one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from prometheus_client import CollectorRegistry
from sqlalchemy import text
from starlette.types import ASGIApp

from billing.accounts.accounts import Accounts
from billing.books.invariants import differences
from billing.caller import NO_LIMITS, ProjectLimits
from billing.errors import PricesUnavailable
from billing.ledger.ledger import Ledger
from billing.ledger.price_list import PriceList
from billing.ledger.spool import Spool
from billing.originals.original_store import OriginalStore
from billing.preservation.checks import PreservationStore
from billing.preservation.sizes import SizeStore
from billing.price import ModelPrice
from billing.rate_limits.counters import MemoryCounters
from billing.rate_limits.rate_limits import RateLimits
from billing.store.database import open_database
from billing.transparency import notes
from compression.pipeline.compression_model import (
    NO_TERMS,
    CompressionModel,
    CompressionRequest,
    CompressionResult,
    JobTerms,
    LocalModel,
)
from compression.pipeline.pipeline import Compressor, Pipeline
from compression.pipeline.spec import CompressionSettings
from compression.scorers.lexical import BM25Scorer
from compression.source.token_counter import FakeCounter, TokenCounter
from models.catalog import Catalog
from models.fake_engine import FakeEngine
from serve.account.proof import Prover
from serve.account.route import AccountReader
from serve.api import Services, create_api
from serve.catalog.offered import catalog_of, none_away, running_models
from serve.chat.service import ChatService
from serve.compress.demo import DemoLimits
from serve.compress.prompt import MessagesService
from serve.compress.route import CompressRoutes
from serve.compress.service import CompressService
from serve.compressors.compressor import ServedCompressor
from serve.config.settings import Settings
from serve.metrics.charged_requests import ServiceMetrics
from serve.money.admission import Admissions
from serve.money.prices import PriceBook
from serve.originals.originals import Originals, Retention
from serve.playground.page_routes import about_of
from serve.prompt_compression.compressing import BlockCompressor
from serve.prompt_compression.outcome import ResultCache
from serve.prompt_compression.service import PromptCompressor
from serve.prompt_compression.verifying import Verifier
from serve.prompt_compression.whole_chats import WholeChats
from tests.migrated import migrated_file
from tests.serve.metrics.readings import counting
from tests.serve.served import Client, PausingDatabase, at_rest, settings_document

INPUT_NANO_USD = 20_000
DEMO_MAX_CHARS = 6000
RETAIN_MAX_S = 3600
RETAIN_MAX_BYTES = 4 * 2**20
DEMO_DEADLINE_S = 1.0
LONGEST_INPUT_BYTES = 30_000
MAX_BODY_BYTES = 512 * 1024
QUERY = "When does the warranty end?"
SENTENCES = (
    "The pump ships with a filter.",
    "Its colour is a matter of taste and of the season.",
    "The warranty ends after two years.",
    "Spare parts are listed below in the order of their use.",
)
CONTEXT = "\n\n".join(SENTENCES)
# Its ends are what QUERY is about.
GAPPED = (
    "Die warranty \U0001f600 endet bald. Its colour is a matter of taste, of the season and of the shop that sold it. "
    "保証は二年です。 The warranty ends after two years."
)


class FakeModel:
    """A fake: a real compressor that can be told to fail for an input, or to wait until it is let go on."""

    def __init__(self, inner: CompressionModel) -> None:
        self.inner = inner
        self.reset()

    def reset(self) -> None:
        """Every knob as it was."""
        self.failures: dict[str, Exception] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.started: list[str] = []
        self.counted: list[str] = []
        self.terms: list[JobTerms] = []
        self.cancelled: list[str] = []
        self.running = self.most_running = 0
        # Tokens above its own count that its receipts say.
        self.counts_more = 0
        # What it answers in place of a result.
        self.garbage: Any = None
        # Instead of counting: fail, or never answer.
        self.count_failure: Exception | None = None
        self.counts_never = False
        # What it counts with beforehand.
        self.counter: TokenCounter = FakeCounter()

    async def compress(self, request: CompressionRequest, terms: JobTerms = NO_TERMS) -> CompressionResult:
        self.started.append(request.input)
        self.terms.append(terms)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(0)
            if (gate := self.gates.get(request.input)) is not None:
                await gate.wait()
            if (failure := self.failures.get(request.input)) is not None:
                raise failure
            if self.garbage is not None:
                return cast(CompressionResult, self.garbage)
            result = await self.inner.compress(request, terms)
            more = result.receipt.original_tokens + self.counts_more
            return replace(result, receipt=replace(result.receipt, original_tokens=more))
        except asyncio.CancelledError:
            self.cancelled.append(request.input)
            raise
        finally:
            self.running -= 1

    async def count_tokens(self, text: str, terms: JobTerms = NO_TERMS) -> int:
        self.counted.append(text)
        self.terms.append(terms)
        if self.count_failure is not None:
            raise self.count_failure
        if self.counts_never:
            await asyncio.Event().wait()
        return self.counter.count(text)

    async def close(self) -> None:
        await self.inner.close()


class ReadyModel(FakeModel):
    """A fake that is up, as a service which starts models on demand asks."""

    async def ready(self) -> bool:
        return True


@dataclass
class Compressing:
    """The service with its compression routes; `model` is what all its compression models are."""

    api: ASGIApp
    model: FakeModel
    database: PausingDatabase
    ledger: Ledger
    accounts: Accounts
    limiter: RateLimits
    registry: CollectorRegistry
    counters: MemoryCounters
    engine: FakeEngine
    cache: ResultCache
    served: dict[str, ServedCompressor]
    originals: Originals
    key: str = ""
    workspace: str = ""
    time: list[datetime] = field(default_factory=list)

    async def renewed(self) -> Compressing:
        """The same service for the next test: a workspace of its own, and every knob as it was."""
        self.model.reset()
        self.engine.requests.clear()
        self.forget()
        self.database.reset()
        await self.new_key()
        return self

    async def new_key(self, *, limits: ProjectLimits = NO_LIMITS, metered: bool = True, **kinds: Any) -> str:
        """A key of a new workspace, which `events` tells of from now on."""
        now, name = datetime.now(UTC), f"acme-{uuid4().hex}"
        await self.accounts.create_workspace(name, **kinds, now=now)
        await self.accounts.create_project(name, "project", metered=metered, limits=limits, now=now)
        self.workspace = name
        self.key = (await self.accounts.keys.create(f"{name}/project", "key", now=now))[1]
        return self.key

    async def new_project_key(self) -> str:
        """Another key of the same project, which knows its settings as they are now."""
        self.key = (
            await self.accounts.keys.create(f"{self.workspace}/project", uuid4().hex, now=datetime.now(UTC))
        )[1]
        return self.key

    def post(self, path: str, body: Any, *, key: str | None = None, **headers: str) -> Client:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = {"Content-Type": "application/json", "X-Request-ID": "compress", **headers}
        if path != "/v1/demo/compress" and key != "":
            fields["Authorization"] = f"Bearer {key or self.key}"
        return Client(self.api, path, "POST", fields, (raw,))

    def compress(self, **fields: Any) -> Client:
        return self.post("/v1/compress", {"query": QUERY, "input": CONTEXT, **fields})

    def bounds(self, lowest: float, highest: float) -> None:
        """The ratios that every compression model takes."""
        for name, served in self.served.items():
            self.served[name] = replace(served, lowest_ratio=lowest, highest_ratio=highest)

    async def reprice(self, chat: ModelPrice, compression_micro_usd_per_mtok: int) -> None:
        """These prices from now on, `chat` for every chat model and the other for `lexical`."""
        compressors = [
            ModelPrice("lexical", compression_micro_usd_per_mtok, 0, 0),
            ModelPrice("free", 0, 0, 0),
        ]
        chats = [replace(chat, model_id=name) for name in ("alpha", "beta", "gamma", "delta")]
        await self.ledger.publish_prices([*chats, *compressors], now=datetime.now(UTC))

    def forget(self) -> None:
        """Whatever was compressed before."""
        self.cache.clear()

    def chat(self, messages: list[dict[str, Any]], **fields: Any) -> Client:
        """A chat with the first model, which is a fake."""
        return self.post("/v1/chat/completions", {"messages": messages, **fields})

    async def set_default(self, **compression: Any) -> None:
        """The project's default."""
        setting = text(
            "UPDATE projects SET compression = :compression "
            "WHERE workspace_id = (SELECT id FROM workspaces WHERE name = :workspace)"
        )
        values = {"compression": json.dumps(compression), "workspace": self.workspace}
        await self.database.write(lambda c: c.execute(setting, values))

    def original(
        self, id_: str, query: str = "", *, key: str | None = None, headers: dict[str, str] | None = None
    ) -> QueryClient:
        fields = {"Authorization": f"Bearer {key or self.key}", "X-Request-ID": "original", **(headers or {})}
        return QueryClient(self.api, f"/v1/compress/{id_}/original", headers=fields, query=query)

    def demo(self, *, address: str | None = "192.0.2.1", **fields: Any) -> DemoClient:
        client = self.post("/v1/demo/compress", {"query": QUERY, "input": CONTEXT, **fields})
        return DemoClient(self.api, client.path, "POST", client.headers, client.pieces, address=address)

    def batch(self, items: Any, *, lines: bool = False, **fields: Any) -> Client:
        accept = {"Accept": "application/x-ndjson"} if lines else {}
        return self.post("/v1/batch/compress", {"items": items, **fields}, **accept)

    async def events(self) -> list[dict[str, Any]]:
        await at_rest()
        statement = text(
            "SELECT e.* FROM usage_events e JOIN workspaces w ON w.id = e.workspace_id "
            "WHERE w.name = :workspace ORDER BY e.event_id"
        )
        rows = await self.database.read(lambda c: c.execute(statement, {"workspace": self.workspace}).all())
        return [dict(row._mapping) for row in rows]

    async def assert_nothing_is_left_open(self) -> None:
        await at_rest()
        holds = await self.database.read(lambda c: c.execute(text("SELECT count(*) FROM holds")).scalar_one())
        held = text("SELECT sum(held_nano_usd) FROM workspaces")
        assert (holds, await self.database.read(lambda c: c.execute(held).scalar_one())) == (0, 0)
        assert await self.database.read(differences) == []
        assert not self.counters._in_flight


@dataclass(repr=False)
class DemoClient(Client):
    """A client at an address."""

    address: str | None = None

    def scope(self) -> dict[str, Any]:
        return {**super().scope(), "client": None if self.address is None else (self.address, 50_000)}


@dataclass(repr=False)
class QueryClient(Client):
    """A client that asks with a query string."""

    query: str = ""

    def scope(self) -> dict[str, Any]:
        return {**super().scope(), "query_string": self.query.encode()}


def local_model(counter: TokenCounter | None = None) -> LocalModel:
    compressor = Compressor(BM25Scorer(), Pipeline(counter or FakeCounter(), CompressionSettings()))
    return LocalModel(compressor, max_waiting=64)


class LatestPrices(PriceBook):
    """The last prices that were published, also while the service runs; in an outage those that were read last."""

    async def current(self) -> PriceList:
        try:
            self._prices = await self._ledger.current_prices()
        except PricesUnavailable:
            if self._prices is None:
                raise
        return self._prices


def served_model() -> ServedCompressor:
    """A fake as the service knows it."""
    return ServedCompressor(
        FakeModel(local_model()),
        default_ratio=0.5,
        longest_input_bytes=LONGEST_INPUT_BYTES,
        tokens_per_byte=1,
    )


@asynccontextmanager
async def compressing(
    folder: Path,
    *,
    batch_concurrency: int = 3,
    per_address: int = 1000,
    of_all: int = 1000,
    in_flight: int = 8,
    tokens_per_byte: int | None = 1,
    keeps_json: bool = True,
    grace_s: float = 60,
    keep_s: float = 5,
    chat_deadline_s: float = 3,
) -> AsyncIterator[Compressing]:
    """The service with two compression models, `lexical`, the default, and `free`, which costs nothing."""
    settings = Settings.model_validate(settings_document(folder))
    (folder / "pith.db").write_bytes(await migrated_file())
    database = PausingDatabase(open_database(settings.billing.database_url))
    spool = Spool(settings.billing.spool_path)
    ledger = Ledger(database, spool)
    prices = [ModelPrice("lexical", INPUT_NANO_USD * 1000, 0, 0), ModelPrice("free", 0, 0, 0)]
    catalog = catalog_of(settings)
    await ledger.publish_prices([*_prices_of(catalog), *prices], now=datetime.now(UTC))
    counters = MemoryCounters()
    limiter, accounts = RateLimits(counters), Accounts(database, pepper=b"p" * 32)
    model, time = FakeModel(local_model()), [datetime.now(UTC)]
    clock: Callable[[], datetime] = lambda: time[0]  # noqa: E731
    book = LatestPrices(ledger)
    counts, registry = counting()
    metrics = ServiceMetrics(
        counts, chat_models=[each.id for each in catalog.models], compression_models=["lexical", "free"]
    )
    served = {
        name: ServedCompressor(
            model,
            default_ratio=0.5,
            longest_input_bytes=LONGEST_INPUT_BYTES,
            tokens_per_byte=tokens_per_byte,
            keeps_json=keeps_json,
        )
        for name in ("lexical", "free")
    }
    admissions = Admissions(
        prices=book, ledger=ledger, limiter=limiter, clock=clock, signer=notes.signer(b"p" * 32)
    )
    originals = Originals(
        OriginalStore(database, grace_s=grace_s),
        pepper=b"p" * 32,
        retention=Retention(RETAIN_MAX_S, RETAIN_MAX_BYTES),
        metrics=metrics.originals,
        keep_s=keep_s,
    )
    service = CompressService(
        models=served, admissions=admissions, metrics=metrics.compress, originals=originals
    )
    demo = DemoLimits(
        limiter,
        requests_per_minute_per_address=per_address,
        requests_per_minute=of_all,
        max_in_flight=in_flight,
        clock=clock,
    )
    engines = {each.id: FakeEngine() for each in catalog.models}
    cache = ResultCache(2**20)
    blocks = BlockCompressor(cache, chat_deadline_s, b"k" * 32)
    compressor = PromptCompressor(
        models=served,
        blocks=blocks,
        metrics=metrics.compress,
        prompt_metrics=metrics.prompt_compression,
        originals=originals,
    )
    messages = MessagesService(compressor, admissions)
    verifier = Verifier(
        engines=engines,
        store=PreservationStore(database),
        metrics=metrics.preservation,
        whole=WholeChats(SizeStore(database), clock),
        clock=clock,
    )

    async def ready() -> bool:
        return True

    services = Services(
        catalog=catalog,
        chat=ChatService(
            catalog=catalog,
            engines=engines,
            admissions=admissions,
            metrics=metrics.chat,
            compressor=compressor,
            verifier=verifier,
        ),
        accounts=accounts,
        limiter=limiter,
        prices=book,
        ready=ready,
        away=none_away,
        metrics=metrics.http,
        clock=clock,
        max_body_bytes=MAX_BODY_BYTES,
        collection_threshold_cents=100,
        account=AccountReader(database, Prover(database, notes.signer(b"of the tests"), None, clock)),
        playground=about_of(settings, catalog, compresses=False, running=running_models(engines, {}).now),
        compress=CompressRoutes(service, messages, demo, DEMO_MAX_CHARS, batch_concurrency, DEMO_DEADLINE_S),
    )
    found = Compressing(
        create_api(services),
        model,
        database,
        ledger,
        accounts,
        limiter,
        registry,
        counters,
        originals=originals,
        engine=engines[catalog.default.id],
        cache=cache,
        served=served,
        time=time,
    )
    try:
        yield await found.renewed()
    finally:
        await verifier.close()
        await ledger.close()
        await spool.close()
        await database.close()
        await model.close()


def _prices_of(catalog: Catalog) -> list[ModelPrice]:
    return [
        ModelPrice(each.id, each.input_micro_usd_per_mtok, each.output_micro_usd_per_mtok, 0)
        for each in catalog.models
    ]
