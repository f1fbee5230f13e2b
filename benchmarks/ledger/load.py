"""Clients that hold and settle as requests do, one after the other each, and a clock around every call."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import uuid4

from billing.accounts.accounts import Accounts
from billing.books.invariants import Violation, differences
from billing.caller import Caller
from billing.ledger.ledger import Ledger
from billing.price import Cost, ModelPrice
from billing.store.database import Database
from billing.usage import Hold, UsageFigures

MODEL = "bench-model"
HELD_NANO_USD, CHARGED_NANO_USD = 1_000_000, 400_000
_FIGURES = UsageFigures(prompt_tokens=200, completion_tokens=100, cached_tokens=0, stream=True)
_COST = Cost(subtotal_nano_usd=CHARGED_NANO_USD, nano_usd=CHARGED_NANO_USD, minimum_applied=False)


class BadRun(RuntimeError):
    """The ledger did not do what was measured, so there is nothing to report."""


@dataclass
class Samples:
    """Raw times of one run. A pair is a hold and its settlement, by the same client."""

    # How busy others kept the machine right before.
    cpu_percent_before: float = 0.0
    hold_ms: list[float] = field(default_factory=list)
    settle_ms: list[float] = field(default_factory=list)
    pairs_per_s: float = 0.0
    # Of holds that were opened before: settlements and nothing else.
    settlements_per_s: float = 0.0
    settled: int = 0

    @property
    def added_ms(self) -> list[float]:
        return [hold + settle for hold, settle in zip(self.hold_ms, self.settle_ms, strict=True)]


class Bench:
    """One ledger under load."""

    def __init__(self, database: Database, ledger: Ledger) -> None:
        self._database = database
        self._ledger = ledger
        self._accounts = Accounts(database, pepper=b"a pepper for the benchmark only")
        self._version = 0

    async def prepare(self) -> None:
        price = ModelPrice(MODEL, 100_000, 400_000, 10_000)
        self._version = await self._ledger.publish_prices([price], now=datetime.now(UTC))

    async def run(self, *, clients: int, workspaces: int, seconds: float) -> Samples:
        """Pairs for `seconds`, then settlements alone for about as long. Raises `BadRun`."""
        callers = [await self.new_caller() for _ in range(workspaces)]
        before = await self._count_events()
        samples = Samples()
        await self._pairs(Samples(), callers, clients, min(1.0, seconds / 4))
        warmed_up = await self._count_events() - before
        await self._pairs(samples, callers, clients, seconds)
        await self._settlements(samples, callers, clients, seconds / 2)
        samples.settled += warmed_up
        await self.verify(samples.settled, await self._count_events() - before)
        return samples

    async def _pairs(self, samples: Samples, callers: Sequence[Caller], clients: int, seconds: float) -> None:
        began = time.perf_counter()
        end = began + seconds

        async def client(caller: Caller) -> None:
            while (start := time.perf_counter()) < end:
                hold = await self.hold(caller)
                held = time.perf_counter()
                await self.settle(hold)
                samples.hold_ms.append(round((held - start) * 1000, 4))
                samples.settle_ms.append(round((time.perf_counter() - held) * 1000, 4))

        await _all(client, callers, clients)
        samples.settled += len(samples.settle_ms)
        samples.pairs_per_s = len(samples.settle_ms) / (time.perf_counter() - began)

    async def _settlements(
        self, samples: Samples, callers: Sequence[Caller], clients: int, seconds: float
    ) -> None:
        held: list[Hold] = []
        end = time.perf_counter() + seconds

        async def open_holds(caller: Caller) -> None:
            while time.perf_counter() < end:
                held.append(await self.hold(caller))

        await _all(open_holds, callers, clients)
        count, began = len(held), time.perf_counter()

        async def settle(_: Caller) -> None:
            while held:
                await self.settle(held.pop())

        await _all(settle, callers, clients)
        samples.settled += count
        samples.settlements_per_s = count / (time.perf_counter() - began)

    async def hold(self, caller: Caller) -> Hold:
        return await self._ledger.hold(
            caller, model_id=MODEL, pricing_version=self._version, amount_nano_usd=HELD_NANO_USD,
            request_id="bench", now=datetime.now(UTC),
        )  # fmt: skip

    async def settle(self, hold: Hold) -> None:
        settlement = await self._ledger.settle(
            hold, figures=_FIGURES, cost=_COST, outcome="completed", now=datetime.now(UTC)
        )
        if not settlement.persisted:
            raise BadRun(f"a settlement was {settlement.status}, not persisted")

    async def verify(self, expected: int, found: int) -> None:
        if expected != found:
            raise BadRun(f"{expected} settlements were made and {found} events are in the ledger")
        unmatched: list[Violation] = await self._database.read(differences)
        if unmatched:
            raise BadRun(f"the ledger does not reconcile: {unmatched}")

    async def _count_events(self) -> int:
        count: int = await self._database.read(
            lambda c: c.exec_driver_sql("SELECT count(*) FROM usage_events").scalar_one()
        )
        return count

    async def new_caller(self) -> Caller:
        now = datetime.now(UTC)
        # A limit that is never reached, since checking it is part of the cost.
        workspace = await self._accounts.create_workspace(
            f"bench {uuid4().hex}", spend_limit_nano_usd=10**17, monthly_limit_nano_usd=10**17, now=now
        )
        project = await self._accounts.create_project(workspace.id, "bench", now=now)
        _, token = await self._accounts.keys.create(project.id, "bench", now=now)
        return await self._accounts.authenticate(token, now=now)


async def _all(client: Callable[[Caller], Awaitable[None]], callers: Sequence[Caller], clients: int) -> None:
    """Each client with a workspace of the list in turn. Raises the first error, when all have ended."""
    try:
        async with asyncio.TaskGroup() as group:
            for caller in itertools.islice(itertools.cycle(callers), clients):
                group.create_task(_ended(client(caller)))
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _ended(work: Awaitable[None]) -> None:
    await work
