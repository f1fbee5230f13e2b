"""Clients of one PostgreSQL ledger through two servers: each holds, settles, gives back, adjusts, reads and changes
limits and keys, and writes down what it asked, when, and what it was answered."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from uuid import uuid4

from billing.accounts.accounts import Accounts
from billing.accounts.keys import KeyChange, KeyTerms
from billing.adjustments.adjustment import Adjustment, AdjustmentRefused
from billing.adjustments.adjustments import Adjustments
from billing.caller import Caller
from billing.errors import QuotaExceeded
from billing.ledger.balances import Spending, spending
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.price import Cost, ModelPrice
from billing.store.database import Database, open_database
from billing.usage import Hold, UsageFigures
from tests.histories.checker import Operation

MODEL = "alpha"
PRICE = ModelPrice(MODEL, 100_000, 400_000, 10_000)
SERVERS, WORKSPACES, KEYS = 2, 4, 3
MOST_NANO_USD = 1_000_000
# What a limit leaves when it is set, so that some requests of each kind meet one.
ROOM_NANO_USD = (0, 30_000_000)
STEPS = {"request": 76, "read": 13, "adjust": 7, "limit": 3, "rotate": 1}
ENDINGS = {"settle": 70, "release": 15, "settle twice": 8, "both": 7}
PEPPER = b"a pepper for histories only"


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Server:
    """What one server has of the ledger."""

    database: Database
    ledger: Ledger
    accounts: Accounts
    adjustments: Adjustments


@dataclass
class Histories:
    """`operations` is what was asked and answered; of each key, `root_of` is the one whose row counts its money, and
    `home` the workspace of each such."""

    servers: list[Server]
    version: int
    operations: list[Operation] = field(default_factory=list)
    callers: list[Caller] = field(default_factory=list)
    root_of: dict[str, str] = field(default_factory=dict)
    home: dict[str, str] = field(default_factory=dict)

    async def new_accounts(self) -> None:
        """Those of a round: nobody asks the ones before any more."""
        self.callers, self.operations, self.root_of, self.home = [], [], {}, {}
        accounts = self.servers[0].accounts
        for _ in range(WORKSPACES):
            most = random.randrange(*ROOM_NANO_USD)
            workspace = await accounts.create_workspace(
                f"history {uuid4().hex}",
                spend_limit_nano_usd=most,
                monthly_limit_nano_usd=2 * most,
                now=_now(),
            )
            project = await accounts.create_project(workspace.id, "main", now=_now())
            for number in range(KEYS):
                terms = KeyTerms(spend_limit_nano_usd=most // 2, monthly_limit_nano_usd=most)
                key, token = await accounts.keys.create(project.id, f"k{number}", terms=terms, now=_now())
                self.callers.append(await accounts.authenticate(token, now=_now()))
                self.root_of[key.id], self.home[key.id] = key.id, workspace.id

    async def run(self, clients: int, operations: int, seed: str) -> None:
        """About so many operations; every hold is closed at the end."""
        await self.new_accounts()
        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                client = Client(
                    self, self.servers[number % len(self.servers)], random.Random(f"{seed} {number}")
                )
                group.create_task(client.run(operations))


@dataclass
class Client:
    world: Histories
    server: Server
    rng: random.Random
    events: list[str] = field(default_factory=list)

    async def run(self, operations: int) -> None:
        steps = {"request": self._request, "read": self._read, "adjust": self._adjust}
        steps |= {"limit": self._limit, "rotate": self._rotate}
        while len(self.world.operations) < operations:
            (name,) = self.rng.choices(list(STEPS), list(STEPS.values()))
            await steps[name](self.rng.choice(self.world.callers))

    def _note(self, kind: str, caller: Caller, began: float, **what: object) -> None:
        own = Operation(kind, caller.workspace_id, caller.key_id, began, time.time(), **what)  # type: ignore[arg-type]
        self.world.operations.append(own)

    async def _request(self, caller: Caller) -> None:
        amount, began = self.rng.randrange(1, MOST_NANO_USD), time.time()
        try:
            hold = await self.server.ledger.hold(
                caller,
                model_id=MODEL,
                pricing_version=self.world.version,
                amount_nano_usd=amount,
                request_id="history",
                now=_now(),
            )
        except QuotaExceeded as error:
            self._note("hold", caller, began, amount=amount, outcome="refused", seen=(error.whose,))
            return
        self._note("hold", caller, began, id=hold.event_id, amount=amount)
        (ending,) = self.rng.choices(list(ENDINGS), list(ENDINGS.values()))
        # Sometimes more than was held, as where an engine counts more than was thought.
        due = (
            self.rng.randrange(0, amount)
            if self.rng.random() < 0.9
            else amount + self.rng.randrange(MOST_NANO_USD)
        )
        settle, release = partial(self._settle, caller, hold, due), partial(self._release, caller, hold)
        ways: dict[str, list[Callable[[], Awaitable[None]]]] = {
            "settle": [settle],
            "release": [release],
            "settle twice": [settle, settle],
            "both": [settle, release],
        }
        await asyncio.gather(*(way() for way in self.rng.sample(ways[ending], len(ways[ending]))))

    async def _settle(self, caller: Caller, hold: Hold, due: int) -> None:
        began = time.time()
        # Each settles the same hold through a server of its own, as a replayed spool does.
        server = self.rng.choice(self.world.servers)
        settlement = await server.ledger.settle(
            hold,
            figures=UsageFigures(2, 6, 0, stream=False),
            cost=Cost(subtotal_nano_usd=due, nano_usd=due, minimum_applied=False),
            outcome="completed",
            now=_now(),
        )
        assert settlement.persisted, settlement
        self._note("settle", caller, began, id=hold.event_id, amount=due)
        self.events.append(hold.event_id)

    async def _release(self, caller: Caller, hold: Hold) -> None:
        began = time.time()
        was_open = await self.server.ledger.release(hold, now=_now())
        self._note(
            "release", caller, began, id=hold.event_id, outcome="done" if was_open else "closed before"
        )

    async def _spending(self, caller: Caller) -> Spending:
        return await self.server.database.read(
            partial(spending, workspace_id=caller.workspace_id, key_id=caller.key_id)
        )

    async def _read(self, caller: Caller) -> None:
        began = time.time()
        found = await self._spending(caller)
        limits = (found.total, found.key_total)
        seen = tuple(
            figure
            for one in limits
            if one is not None
            for figure in (one.used_nano_usd, one.held_nano_usd, one.limit_nano_usd)
        )
        self._note("read", caller, began, outcome="read", seen=seen)

    async def _adjust(self, caller: Caller) -> None:
        ask, began = self._asked(caller), time.time()
        # Two at once with the same key, as a program does whose first answer is late.
        made = await asyncio.gather(*(ask() for _ in range(self.rng.choice((1, 2)))), return_exceptions=True)
        for one in made:
            if isinstance(one, Adjustment):
                self._note("adjust", caller, began, id=one.id, amount=one.nano_usd)
            elif not isinstance(one, AdjustmentRefused):
                raise one

    def _asked(self, caller: Caller) -> Callable[[], Awaitable[Adjustment]]:
        adjustments, amount = self.server.adjustments, self.rng.randrange(1, MOST_NANO_USD)
        key = uuid4().hex
        kind = self.rng.choice(("credit", "adjust", "refund"))
        if kind == "refund" and self.events:
            return partial(
                adjustments.refund, self.rng.choice(self.events), reason="history", idempotency_key=key
            )
        if kind == "adjust":
            amount *= self.rng.choice((-1, 1))
            return partial(
                adjustments.adjust,
                caller.workspace_id,
                nano_usd=amount,
                reason="history",
                idempotency_key=key,
            )
        return partial(
            adjustments.credit, caller.workspace_id, nano_usd=amount, reason="history", idempotency_key=key
        )

    async def _limit(self, caller: Caller) -> None:
        """Sets a limit a little above what is spent, on the workspace or the key."""
        found, began = await self._spending(caller), time.time()
        limits = {"spend_limit_nano_usd": self.rng.randrange(*ROOM_NANO_USD)}
        limits["monthly_limit_nano_usd"] = limits["spend_limit_nano_usd"] + self.rng.randrange(*ROOM_NANO_USD)
        of_key = self.rng.random() < 0.6
        spent = found.key_total if of_key and found.key_total is not None else found.total
        values = {name: max(0, spent.used_nano_usd) + most for name, most in limits.items()}
        if of_key:
            root = self.world.root_of[caller.key_id]
            await self.server.accounts.keys.change(root, KeyChange(values), now=_now())
        else:
            await self.server.accounts.change_workspace(caller.workspace_id, values)
        self._note("limit", caller, began)

    async def _rotate(self, caller: Caller) -> None:
        began = time.time()
        key, token, _ = await self.server.accounts.keys.rotate(
            caller.key_id, overlap=timedelta(days=1), now=_now()
        )
        self.world.root_of[key.id] = self.world.root_of[caller.key_id]
        self.world.callers.append(await self.server.accounts.authenticate(token, now=_now()))
        self._note("rotate", caller, began)


async def opened(url: str, folder: Path, stack: AsyncExitStack) -> Histories:
    """Two servers on a ledger that was migrated; `folder` gets their spools."""
    servers = []
    for number in range(SERVERS):
        # A busy machine may take seconds for a statement.
        database, spool = open_database(url, timeout_s=60), Spool(folder / f"spool-{number}.db")
        # Written off is what it should be: the journal has it.
        ledger = Ledger(database, spool, written_off=lambda event, nano_usd: None)
        servers.append(
            Server(
                database, ledger, Accounts(database, pepper=PEPPER), Adjustments(database, actor="histories")
            )
        )
        stack.push_async_callback(database.close)
        stack.push_async_callback(spool.close)
        stack.push_async_callback(ledger.close)
    version = await servers[0].ledger.publish_prices([PRICE], now=_now())
    for server in servers[1:]:
        assert await server.ledger.publish_prices([PRICE], now=_now()) == version
    return Histories(servers, version)
