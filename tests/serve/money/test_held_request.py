"""What every kind of request shares on its way through limits and ledger, shown by a kind that the service does not
have: embeddings, which use prompt tokens only."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text

from billing.accounts.accounts import Accounts
from billing.books.invariants import differences
from billing.caller import NO_LIMITS, Caller, ProjectLimits
from billing.errors import PricesUnavailable, QuotaExceeded, RateLimited, UsageNotRecorded
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.price import Cost, ModelPrice
from billing.rate_limits.rate_limits import RateLimits
from billing.store.database import open_database
from billing.usage import MeteringStatus
from models.engine import TokenUsage
from serve.http.replies import Client
from serve.money.admission import Admissions
from serve.money.held_request import HeldRequest, MoreThanHeld, MostTokens, Receipt, TokenTerms
from serve.money.prices import PriceBook, charged_fields
from tests.migrated import migrated_file
from tests.serve.served import PausingDatabase, at_rest

TOKEN_NANO_USD = 1000
PRICE = ModelPrice("embedder", TOKEN_NANO_USD * 1000, 0, 0)
OTHER = ModelPrice("other", 2 * TOKEN_NANO_USD * 1000, 0, 0)
WORDS = 5
# What a text is held for until it is counted.
BOUND = 3 * WORDS

Work = Callable[[HeldRequest], Awaitable[None]]


async def done(held: HeldRequest) -> None:
    """The work of a model that is quick."""


@dataclass
class Counted:
    """A fake of the metrics: what it was told, in order."""

    told: list[Any] = field(default_factory=list)

    def settle(self, usage: TokenUsage, cost: Cost, status: MeteringStatus) -> None:
        self.told.append((usage.prompt_tokens, cost.nano_usd, status))

    def lose(self) -> None:
        self.told.append("lost")

    def fail(self, error: BaseException) -> None:
        self.told.append(type(error).__name__)

    def end(self) -> None:
        self.told.append("end")


@dataclass
class Embeddings:
    """A fake kind of request on a real ledger and real limits."""

    admissions: Admissions
    accounts: Accounts
    database: PausingDatabase
    ledger: Ledger
    spool: Spool
    caller: Caller
    observed: Counted = field(default_factory=Counted)
    counted: int = 0
    left: list[int | None] = field(default_factory=list)

    def terms(self, *, model_id: str = "embedder", **kinds: Any) -> TokenTerms:
        async def count() -> MostTokens:
            self.counted += 1
            return MostTokens(WORDS, 0)

        return TokenTerms(model_id, MostTokens(BOUND, 0), MostTokens(1, 0), count, **kinds)

    async def embed(
        self, work: Work = done, *, used: int = WORDS, client: Client | None = None, **kinds: Any
    ) -> Receipt:
        terms = self.terms(**kinds)
        async with self.admissions.admit(self.caller, "embed", [terms], route="embeddings") as admitted:
            window = admitted.limits.tokens
            self.left.append(window.remaining if window else None)
            async with admitted.hold(terms, self.observed, client=client) as held:
                held.use(TokenUsage(prompt_tokens=used))
                await work(held)
                return await held.settle("completed")

    async def become(self, *, metered: bool = True, limits: ProjectLimits = NO_LIMITS, **kinds: Any) -> None:
        """From now on the caller is a project of a new workspace."""
        now, name = datetime.now(UTC), uuid4().hex
        await self.accounts.create_workspace(name, **kinds, now=now)
        await self.accounts.create_project(name, "project", metered=metered, limits=limits, now=now)
        _, key = await self.accounts.keys.create(f"{name}/project", "key", now=now)
        self.caller = await self.accounts.authenticate(key, now=now)

    async def money(self) -> tuple[int, int]:
        """Posted and held, once nothing runs any more."""
        await at_rest()
        assert await self.database.read(differences) == []
        workspace = await self.accounts.find_workspace(self.caller.workspace_id)
        return workspace.posted_nano_usd, workspace.held_nano_usd

    async def events(self) -> list[tuple[Any, ...]]:
        await at_rest()
        columns = "outcome, prompt_tokens, completion_tokens, cost_nano_usd, receipt"
        statement = text(f"SELECT {columns} FROM usage_events WHERE workspace_id = :id ORDER BY settled_at")
        wanted = {"id": self.caller.workspace_id}
        rows = await self.database.read(lambda c: c.execute(statement, wanted).all())
        return [tuple(row) for row in rows]


@asynccontextmanager
async def embedding(folder: Path) -> AsyncIterator[Embeddings]:
    (folder / "ledger.db").write_bytes(await migrated_file())
    database = PausingDatabase(open_database(f"sqlite:///{folder / 'ledger.db'}"))
    spool = Spool(folder / "spool.db")
    ledger = Ledger(database, spool)
    await ledger.publish_prices([PRICE, OTHER], now=datetime.now(UTC))
    admissions = Admissions(
        prices=PriceBook(ledger), ledger=ledger, limiter=RateLimits(), clock=lambda: datetime.now(UTC)
    )
    accounts = Accounts(database, pepper=b"p" * 32)
    nobody = Caller(workspace_id="w", project_id="p", key_id="k", metered=False, limits=NO_LIMITS)
    found = Embeddings(admissions, accounts, database, ledger, spool, nobody)
    await found.become()
    try:
        yield found
    finally:
        await ledger.close()
        await spool.close()
        await database.close()


@pytest.fixture
async def kind(tmp_path: Path) -> AsyncIterator[Embeddings]:
    async with embedding(tmp_path) as found:
        yield found


class Broken(Exception):
    """The made-up model failed."""


async def breaks(held: HeldRequest) -> None:
    raise Broken


class Interrupted:
    """Work in whose midst the request is cancelled, by a client that leaves or by a server that stops."""

    def __init__(self, *, client: Client | None = None, tokens: int = WORDS) -> None:
        self._client = client
        self._tokens = tokens

    async def __call__(self, held: HeldRequest) -> None:
        held.use(TokenUsage(prompt_tokens=self._tokens))
        if self._client is not None:
            self._client.gone = True
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)


async def test_a_request_of_a_new_kind_is_held_settled_and_counted(kind: Embeddings) -> None:
    async def look(held: HeldRequest) -> None:
        workspace = await kind.accounts.find_workspace(kind.caller.workspace_id)
        assert workspace.held_nano_usd == BOUND * TOKEN_NANO_USD

    receipt = await kind.embed(look)
    cost = WORDS * TOKEN_NANO_USD
    thought = replace(receipt, usage=replace(receipt.usage, reasoning_tokens=3))
    assert charged_fields(thought)["usage"]["completion_tokens_details"] == {"reasoning_tokens": 3}
    assert charged_fields(receipt) == {
        "usage": {
            "prompt_tokens": WORDS,
            "completion_tokens": 0,
            "total_tokens": WORDS,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
        "service": {
            "billing": {
                "input_price_per_mtok": 1.0,
                "output_price_per_mtok": 0.0,
                "minimum_request_charge_usd": 0.0,
                "minimum_applied": False,
                "request_cost_usd": cost / 10**9,
            },
            "metering": {"persisted": True, "status": "persisted"},
        },
    }
    assert await kind.events() == [("completed", WORDS, 0, cost, None)]
    assert await kind.money() == (cost, 0)
    assert kind.observed.told == [(WORDS, cost, "persisted"), "end"]


async def test_near_the_limit_it_is_counted_and_without_money_refused(kind: Embeddings) -> None:
    await kind.become(spend_limit_nano_usd=WORDS * TOKEN_NANO_USD)
    await kind.embed()
    assert kind.counted == 1
    with pytest.raises(QuotaExceeded):
        await kind.embed()
    assert kind.counted == 1 and kind.observed.told[-2:] == ["QuotaExceeded", "end"]
    assert await kind.money() == (WORDS * TOKEN_NANO_USD, 0)


async def test_what_is_not_proven_is_counted_before_it_is_held(kind: Embeddings) -> None:
    await kind.embed(bound_is_proven=False)
    assert kind.counted == 1
    await kind.become(metered=False)
    await kind.embed(bound_is_proven=False)
    assert kind.counted == 1


async def test_more_than_was_held_is_never_charged(kind: Embeddings) -> None:
    await kind.embed(used=BOUND)
    with pytest.raises(MoreThanHeld):
        await kind.embed(used=BOUND + 1)
    assert await kind.money() == (BOUND * TOKEN_NANO_USD, 0)
    await kind.become(metered=False)
    assert (await kind.embed(used=BOUND + 1)).settlement.status == "not_applicable"


async def test_a_failure_of_ours_costs_nothing(kind: Embeddings) -> None:
    with pytest.raises(Broken):
        await kind.embed(breaks)
    assert await kind.events() == [] and await kind.money() == (0, 0)
    assert kind.observed.told == ["Broken", "end"]


async def test_who_leaves_pays_for_what_the_model_read_and_for_nothing_before(kind: Embeddings) -> None:
    for tokens in (0, WORDS):
        client = Client()
        with pytest.raises(asyncio.CancelledError):
            await kind.embed(Interrupted(client=client, tokens=tokens), used=0, client=client)
    cost = WORDS * TOKEN_NANO_USD
    assert await kind.events() == [("disconnected", WORDS, 0, cost, None)]
    assert await kind.money() == (cost, 0)
    assert kind.observed.told == [
        *("CancelledError", "end"),
        *("CancelledError", (WORDS, cost, "persisted"), "end"),
    ]


async def test_a_server_that_stops_charges_nothing_for_a_reply_that_nobody_has(kind: Embeddings) -> None:
    with pytest.raises(asyncio.CancelledError):
        await kind.embed(Interrupted())
    assert await kind.events() == [] and await kind.money() == (0, 0)


async def test_settling_twice_is_settling_once(kind: Embeddings) -> None:
    async def settle_too(held: HeldRequest) -> None:
        await asyncio.gather(*(held.settle("completed") for _ in range(3)))

    await kind.embed(settle_too)
    assert len(await kind.events()) == 1
    assert kind.observed.told == [(WORDS, WORDS * TOKEN_NANO_USD, "persisted"), "end"]


async def test_what_breaks_after_the_settlement_changes_nothing_of_it(kind: Embeddings) -> None:
    async def settle_and_break(held: HeldRequest) -> None:
        await held.settle("completed", receipt='{"dimensions":3}')
        raise Broken

    with pytest.raises(Broken):
        await kind.embed(settle_and_break)
    ((*charged, receipt),) = await kind.events()
    assert charged == ["completed", WORDS, 0, WORDS * TOKEN_NANO_USD]
    assert json.loads(receipt) == {"dimensions": 3}
    assert kind.observed.told == [(WORDS, WORDS * TOKEN_NANO_USD, "persisted"), "Broken", "end"]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_settlement_goes_on_when_nobody_waits_for_it_any_more(kind: Embeddings, when: str) -> None:
    limits = ProjectLimits(tokens_per_minute=1000, max_in_flight=1)
    await kind.become(limits=limits)

    async def pause_the_ledger(held: HeldRequest) -> None:
        kind.database.pauses = when

    running = asyncio.create_task(kind.embed(pause_the_ledger))
    await kind.database.paused.wait()
    running.cancel()
    # It ends without an answer of the ledger.
    await asyncio.wait([running])
    kind.database.resumed.set()
    cost = WORDS * TOKEN_NANO_USD
    assert await kind.money() == (cost, 0)
    assert kind.observed.told == ["CancelledError", "end", (WORDS, cost, "persisted")]
    kind.database.reset()
    await kind.embed()
    assert kind.left == [1000 - BOUND, 1000 - WORDS - BOUND], "what was charged must count against the limit"


async def test_usage_that_nobody_could_write_down_is_counted_as_lost(kind: Embeddings) -> None:
    async def lose_everything(held: HeldRequest) -> None:
        kind.database.is_down = True
        await kind.spool.close()

    with pytest.raises(UsageNotRecorded):
        await kind.embed(lose_everything)
    assert kind.observed.told == ["lost", "UsageNotRecorded", "end"]


async def test_a_loss_that_nobody_waits_for_is_counted_and_leaves_no_stray_exception(
    kind: Embeddings, caplog: pytest.LogCaptureFixture
) -> None:
    async def pause_and_lose_everything(held: HeldRequest) -> None:
        kind.database.pauses = "before"
        await kind.spool.close()

    running = asyncio.create_task(kind.embed(pause_and_lose_everything))
    await kind.database.paused.wait()
    running.cancel()
    await asyncio.wait([running])
    kind.database.is_down = True
    kind.database.resumed.set()
    await at_rest()
    gc.collect()
    assert kind.observed.told == ["CancelledError", "end", "lost"]
    assert not [record for record in caplog.records if record.name == "asyncio"]


async def test_a_kind_that_forgets_to_settle_is_at_fault_and_holds_nothing(kind: Embeddings) -> None:
    terms = kind.terms()
    async with kind.admissions.admit(kind.caller, "embed", [terms], route="embeddings") as admitted:
        with pytest.raises(RuntimeError, match="without its settlement"):
            async with admitted.hold(terms, kind.observed) as held:
                held.use(TokenUsage(prompt_tokens=WORDS))
    assert admitted.used_tokens == 0
    assert await kind.money() == (0, 0) and kind.observed.told == ["RuntimeError", "end"]


async def test_what_a_check_refuses_is_counted_and_held_nowhere(kind: Embeddings) -> None:
    def check() -> None:
        raise Broken

    terms = kind.terms()
    async with kind.admissions.admit(kind.caller, "embed", [terms], route="embeddings") as admitted:
        with pytest.raises(Broken):
            async with admitted.hold(terms, kind.observed, check=check):
                pytest.fail("it was let through")
    assert kind.observed.told == ["Broken", "end"] and await kind.money() == (0, 0)


async def test_limits_count_what_was_used_and_nothing_of_what_failed(kind: Embeddings) -> None:
    await kind.become(limits=ProjectLimits(tokens_per_minute=1000))
    await kind.embed()
    with pytest.raises(Broken):
        await kind.embed(breaks)
    await kind.embed()
    assert kind.left == [1000 - BOUND, 1000 - WORDS - BOUND, 1000 - WORDS - BOUND]


async def test_a_limit_refuses_by_what_was_counted(kind: Embeddings) -> None:
    await kind.become(limits=ProjectLimits(tokens_per_minute=2 * WORDS))
    await kind.embed()
    await kind.embed()
    with pytest.raises(RateLimited):
        await kind.embed()
    # Of a limit that is used up, no count can make room.
    assert kind.counted == 2


async def test_parts_of_one_request_are_one_for_the_limits_and_each_is_paid_for(kind: Embeddings) -> None:
    """As a chat request is whose messages are compressed first."""
    await kind.become(limits=ProjectLimits(requests_per_minute=1, tokens_per_minute=1000))
    first, second = kind.terms(), kind.terms(model_id="other")
    async with (
        kind.admissions.admit(kind.caller, "both", [first, second], route="embeddings") as admitted,
        admitted.hold(first, kind.observed) as outer,
    ):
        with pytest.raises(Broken):
            async with admitted.hold(second, kind.observed) as failed:
                await breaks(failed)
        async with admitted.hold(second, kind.observed) as inner:
            inner.use(TokenUsage(prompt_tokens=2))
            await inner.settle("completed")
        outer.use(TokenUsage(prompt_tokens=WORDS))
        await outer.settle("completed")
    assert admitted.used_tokens == WORDS + 2
    cost = WORDS * TOKEN_NANO_USD + 2 * 2 * TOKEN_NANO_USD
    assert await kind.money() == (cost, 0) and len(await kind.events()) == 2


async def test_a_model_without_a_price_is_worked_for_by_nobody(kind: Embeddings) -> None:
    with pytest.raises(PricesUnavailable):
        await kind.embed(model_id="unknown")
    assert kind.observed.told == ["PricesUnavailable", "end"] and await kind.money() == (0, 0)
