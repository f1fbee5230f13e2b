"""One server on one disk, whose requests come by raw ASGI, and all that it does beside them until it is at rest."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, func, select

from billing.accounts.accounts import Accounts
from billing.accounts.keys import KeyTerms
from billing.archive.archiver import Archiver
from billing.books.books import Books
from billing.caller import ProjectLimits
from billing.errors import BillingError
from billing.labels import TAGS_HEADER, labelled
from billing.ledger.budget_settings import Budgets, BudgetScope
from billing.ledger.leases import LeaseTimes
from billing.ledger.spool import Spool
from billing.periods import PeriodKind
from billing.price import NANO_PER_USD, cost
from billing.store import sqlite
from billing.store.database import Work, open_database
from billing.store.log_tables import log_pending
from billing.store.schema import holds
from billing.transparency.sequencer import Sequencer
from billing.usage import UsageFigures
from billing.webhooks import outbox
from billing.webhooks.limit_alerts import Refusals
from serve.app import build_service, open_ledger
from serve.batches.runner import BatchRunner, Pace
from serve.catalog.offered import catalog_of
from serve.config.settings import Settings
from serve.money.ledger_setup import prices_of, read_pepper
from serve.money.upkeep import WebhookRoom, log_sequencer, open_webhooks
from tests.migrated import migrated_file
from tests.serve.compressing import local_model
from tests.serve.metrics.readings import counting
from tests.serve.served import EngineSwitch, PausingDatabase, Served, settings_document
from tests.single_faults.seam import CountedClient, CountedCompressor, CountedEngine

# What takes longer is given up by its caller: where something hangs soon, on a busy machine later; else never.
SHORT_S, LONGER_S, LONG_S = 0.2, 0.8, 30.0
LEASE = LeaseTimes(renew_every_s=0.02)
# More than a lease, a claim and a pause between two tries have left.
LATER_S = 40.0
MOST_ROUNDS, ROUNDS_IN_TIME = 24, 4
WORKSPACE, PROJECT, ARCHIVE, KEY = "acme", "acme/project", "archive", "key"
# Every request names them, and is counted in a budget of each scope.
PERSON, TAG = "ada@example.com", "mail"
BUDGETS: Mapping[BudgetScope, PeriodKind] = {
    "workspace": "month",
    "project": "week",
    "key": "day",
    "person": "hour",
    "tag": "total",
}
Tell = Callable[[Mapping[str, Any]], None]
# Returns what is left to do, if anything is.
Round = Callable[[], Awaitable[Any]]


@dataclass(eq=False)
class Clock:
    """The databases' own: ahead of the machine's."""

    ahead_s: float = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_s


CLOCK = Clock()


@contextmanager
def statements_kept() -> Iterator[None]:
    """Servers that are built in this block have the engines, and so the compiled statements, of those before them."""
    opening = sqlite._engine
    sqlite._engine = cache(opening)
    try:
        yield
    finally:
        sqlite._engine = opening


@dataclass
class Server:
    """As a process has it."""

    folder: Path
    served: Served
    engine: CountedEngine
    compressor: CountedCompressor
    webhooks: WebhookRoom
    sequencer: Sequencer
    archiver: Archiver
    tell: Tell = lambda what: None

    def give_up_after(self, timeout_s: float) -> None:
        """How long its databases may take."""
        for database in (self.served.database._inner, self.spool._database):
            assert isinstance(database, sqlite.SqliteDatabase)
            database._timeout_s = timeout_s

    async def close(self) -> None:
        """All is on the disk, and in its files."""
        await self.webhooks.close()
        await self.served.ledger.close()
        await self.spool.close()
        await self.served.database.close()
        await self.compressor.close()

    @property
    def spool(self) -> Spool:
        return self.served.spool

    async def read(self, work: Work[Any]) -> Any:
        return await self.served.database.read(work)

    def ask(self, path: str, body: Any) -> CountedClient:
        headers = {
            "Authorization": f"Bearer {self.served.key}",
            "Content-Type": "application/json",
            "X-Request-ID": "asked",
            TAGS_HEADER: TAG,
        }
        pieces = (json.dumps({**body, "user": PERSON}).encode(),)
        return CountedClient(self.served.api, path, "POST", headers, pieces, told=self._told)

    def _told(self, message: Mapping[str, Any]) -> None:
        body = message.get("body", b"").decode()
        self.tell({"status": message.get("status"), "body": body, "more": message.get("more_body", False)})

    async def deliver(self) -> int:
        """Of webhooks; how many wait."""
        await self.webhooks.dispatcher.once()
        waiting: int = await self.read(outbox.count_waiting)
        return waiting

    async def archive(self) -> list[str]:
        """All months but this one and the last; those that were archived now."""
        return await self.archiver.archive(1)

    async def run_batches(self) -> bool:
        """Inputs, lines, files; whether anything is left. One line at a time, so that steps have one order."""
        room = self.served.batches
        lines = replace(room.runner._lines, first_pause_s=0.0)
        await room.jobs.once()
        await BatchRunner(room.runner._store, lines, Pace(room.runner._pace.interactive, 1, 1)).once()
        await room.jobs.once()
        return await room.runner._store.any_unfinished()

    async def use(self, now: datetime) -> str:
        """A request that was settled at that time; the id of its event."""
        served = self.served
        caller = labelled(
            await served.accounts.authenticate(served.key, now=now), {"user": PERSON}, header=TAG
        )
        prices = await served.ledger.current_prices()
        hold = await served.ledger.hold(
            caller,
            model_id="alpha",
            pricing_version=prices.version,
            amount_nano_usd=10**7,
            request_id="used",
            now=now,
        )
        price = prices.of("alpha")
        assert price is not None
        due = cost(price, prompt_tokens=9, completion_tokens=4, minimum=True)
        figures = UsageFigures(9, 4, 0, stream=False)
        await served.ledger.settle(hold, figures=figures, cost=due, outcome="completed", now=now)
        return hold.event_id

    async def upkeep(self) -> None:
        """One round of what every server does for its money."""
        await self.served.ledger.replay_spool()
        await self.served.ledger.keep_leases()
        await self.sequencer.once()

    async def unsettled(self) -> list[str]:
        """What of its money is not at rest."""
        held, pending = await self.read(_open)
        waiting = await self.spool.count_waiting()
        found = {
            "holds are open": held,
            "rows wait for the log": pending,
            "events wait in the spool": waiting,
        }
        return [f"{number} {what}" for what, number in found.items() if number]

    async def come_to_rest(self, rounds: Sequence[Round], *, is_new: bool) -> list[str]:
        """After a fault, all goes well again: upkeep, and `rounds`, until nothing is left to do; what is wrong then.
        It closes at once what is its own. Only then does the clock go on, to the end of what others have claimed,
        and to that of the leases of one that died, where this one `is_new`."""
        troubles: list[str] = []
        for number in range(MOST_ROUNDS):
            left = [await tried(once) for once in (self.upkeep, *rounds)]
            unsettled = await self.unsettled()
            if not unsettled and not any(left):
                return troubles
            if number == ROUNDS_IN_TIME and unsettled and not is_new:
                troubles.append(f"left by a server that lives: {', '.join(unsettled)}")
            if number >= ROUNDS_IN_TIME:
                CLOCK.ahead_s += LATER_S
            await asyncio.sleep(LEASE.renew_every_s)
        return [*troubles, f"never at rest: {unsettled} {left}"]


async def tried(once: Round) -> Any:
    """What is left to do, or what failed."""
    try:
        return await once()
    except BillingError as error:
        return f"{type(error).__name__}: {error}"


def _open(connection: Connection) -> tuple[int, int]:
    counted = (select(func.count()).select_from(table) for table in (holds, log_pending))
    held, pending = (connection.execute(one).scalar_one() for one in counted)
    return held, pending


def settings_of(folder: Path) -> Settings:
    billing = {
        "database_url": f"sqlite:///{folder / 'ledger.db'}",
        "spool_path": str(folder / "spool.db"),
        "upkeep_s": 0.1,
        "service_tiers": {"flex": 0.5},
    }
    compressor = {
        "id": "lexical",
        "name": "Lexical",
        "blurb": "Scores with BM25.",
        "kind": "lexical",
        "price_usd_per_mtok_input": "20",
    }
    return Settings.model_validate(
        settings_document(
            folder,
            billing=billing,
            server={"max_body_bytes": 16384},
            compression={"models": [compressor], "chat": {"deadline_s": 1}},
            webhooks={"allow_http": True, "allowed_networks": ["127.0.0.0/8"], "timeout_s": 1},
            log={"origin": "single-faults"},
        )
    )


def build(folder: Path) -> Server:
    """A server on this disk. Nothing is asked of it yet, and nothing runs: it may be taken along by a fork."""
    settings = settings_of(folder)
    database = PausingDatabase(open_database(settings.billing.database_url, timeout_s=LONG_S, clock=CLOCK))
    spool = Spool(settings.billing.spool_path, timeout_s=LONG_S)
    ledger = open_ledger(settings, database, spool, lease=LEASE)
    engine, compressor = CountedEngine(text="one two three"), CountedCompressor(local_model())
    counts, registry = counting()
    api, batches, _ = build_service(
        settings,
        engines={model.id: engine for model in settings.models},
        compressors={model.id: compressor for model in settings.compression.models},
        database=database,
        ledger=ledger,
        counts=counts,
        lease=LEASE,
    )
    accounts = Accounts(database, pepper=read_pepper(settings.state_dir))
    key = folder / KEY
    served = Served(
        api,
        settings,
        EngineSwitch(),
        database,
        ledger,
        spool,
        accounts,
        registry,
        batches,
        workspace=WORKSPACE,
        key=key.read_text() if key.exists() else "",
    )
    webhooks = open_webhooks(settings, database, Refusals())
    archiver = Archiver(database, spool, folder / ARCHIVE, actor="single faults")
    return Server(folder, served, engine, compressor, webhooks, log_sequencer(settings, database), archiver)


async def make(folder: Path) -> None:
    """A new ledger with prices, a project whose replies promise their leaves, and every kind of budget and limit that
    the ledger counts."""
    (folder / "ledger.db").write_bytes(await migrated_file())
    moment = datetime.now(UTC)
    server = build(folder)
    served, settings = server.served, server.served.settings
    prices = prices_of(catalog_of(settings), settings.compression.models, settings.retrieval_models)
    await served.ledger.publish_prices(prices, now=moment)
    await served.accounts.create_workspace(WORKSPACE, now=moment)
    limits = ProjectLimits(requests_per_day=1000, tokens_per_hour=10**6)
    await served.accounts.create_project(WORKSPACE, "project", proof=True, limits=limits, now=moment)
    terms = KeyTerms(limits=ProjectLimits(tokens_per_day=10**6))
    made, key = await served.accounts.keys.create(PROJECT, "key", terms=terms, now=moment)
    (folder / KEY).write_text(key)
    for scope, period in BUDGETS.items():
        of = {"workspace": WORKSPACE, "key": made.id}.get(scope, PROJECT)
        tag = TAG if scope == "tag" else None
        budgets = Budgets(served.database, "single faults")
        await budgets.set(scope, of, period, NANO_PER_USD, tag=tag, now=moment)
    # Of a server that has run before.
    await server.upkeep()
    await server.close()


def long_ago(months: int) -> datetime:
    """In the middle of a month that is over."""
    return datetime.now(UTC).replace(day=12) - timedelta(days=31 * months)


async def books_are_clean(server: Server) -> list[str]:
    """What a full reconciliation finds."""
    found = await Books(server.served.database).reconcile(server.spool, full=True)
    return [] if found.is_clean else [f"the books do not add up: {found}"]
