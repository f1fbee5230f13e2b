"""Holds what clients saw, and what the engine wrote down, against the ledger after a run."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import bindparam, text

from billing.books import invariants
from billing.books.mispriced import MispricedEvent, mispriced_events
from billing.books.wrong_adjustments import wrong_adjustments
from billing.errors import LedgerUnavailable
from billing.ledger.spool import Spool
from billing.store.database import Database, open_database
from tests.faults.client import CHATS, Answer, Bill
from tests.faults.hook import hook_troubles
from tests.faults.leaves import leaves_of_workspaces
from tests.faults.pairs import pair_troubles
from tests.faults.prices import PinnedPrice

SETTLED_S = 60.0
INTERNAL = b'"internal_error"'
_WAITING = text("SELECT count(*) FROM log_pending")
_OURS = bindparam("workspaces", expanding=True)
_HOLDS = text("SELECT count(*) FROM holds WHERE workspace_id IN :workspaces").bindparams(_OURS)
_EVENTS = text("SELECT * FROM usage_events WHERE workspace_id IN :workspaces").bindparams(_OURS)
_COLLECTIONS = text("SELECT * FROM collections WHERE workspace_id IN :workspaces").bindparams(_OURS)
_RAISED = text(
    "SELECT workspace_id, sum(nano_usd) AS nano_usd FROM adjustments WHERE workspace_id IN :workspaces "
    "AND nano_usd > 0 GROUP BY workspace_id"
).bindparams(_OURS)
_BALANCES = text(
    "SELECT id, posted_nano_usd, held_nano_usd FROM workspaces WHERE id IN :workspaces"
).bindparams(_OURS)


@dataclass
class Tally:
    """The figures of one run, or of many. `degraded`: of the completed, those whose usage went through the spool.
    `also_billed`: events of replies that the client saw no end of."""

    runs: int = 0
    requests: int = 0
    completed: int = 0
    # Of these, compressions and batches, and chats whose prompt was compressed for money.
    compressions: int = 0
    pairs: int = 0
    # Chats whose prompt was compressed before, for nothing, and those that went out whole.
    cached: int = 0
    whole: int = 0
    degraded: int = 0
    expected: int = 0
    found: int = 0
    lost: int = 0
    doubled: int = 0
    also_billed: int = 0
    # Usage beyond its hold and the limits, which nobody is charged for; collections that were cut; and how often the
    # ledger was looked at while the run went on.
    written_off: int = 0
    collections: int = 0
    looks: int = 0
    # Events and adjustments that are in the transparency log, and those that are not there or there twice.
    leaves: int = 0
    leaves_lost: int = 0
    leaves_doubled: int = 0
    violations: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        for name in vars(other):
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(frozen=True)
class Books:
    """Where a run's money is written down, and what it is held against."""

    database_url: str
    spool_paths: Sequence[Path]
    workspaces: Sequence[str]
    prices: Mapping[str, PinnedPrice]
    # By request id, how many tokens were generated at most.
    generated: Callable[[str], int]
    # Where a collection hook wrote down what it was asked.
    hook_folder: Path | None = None


async def settled(books: Books, *, within_s: float = SETTLED_S) -> None:
    """Wait until no hold is open, and nothing waits in a spool or for the log; raise `TimeoutError` at the deadline."""
    database = open_database(books.database_url)
    spools = [Spool(path) for path in books.spool_paths]
    wanted = {"workspaces": list(books.workspaces)}
    deadline, state = time.monotonic() + within_s, "the ledger cannot be read"
    try:
        while True:
            try:
                holds = await database.read(lambda c: c.execute(_HOLDS, wanted).scalar_one())
                waiting = sum([await spool.count_waiting() for spool in spools])
                pending = await database.read(lambda c: c.execute(_WAITING).scalar_one())
                state = f"{holds} holds are open, {waiting} events wait in the spool, and {pending} rows for the log"
                if holds == waiting == pending == 0:
                    return
            except LedgerUnavailable as error:
                state = str(error)
            if time.monotonic() > deadline:
                raise TimeoutError(f"not settled within {within_s:g} s: {state}")
            await asyncio.sleep(0.02)
    finally:
        for spool in spools:
            await spool.close()
        await database.close()


async def check(
    books: Books,
    answers: Sequence[Answer],
    *,
    everyone_lives: bool,
    may_err: bool = False,
    chats_may_fail: bool = True,
) -> Tally:
    """With `everyone_lives`, also a stream that only began must have its event. Nobody may be answered with an
    error of the server's own making, unless the run has an engine that is at fault (`may_err`). Unless
    `chats_may_fail`, nothing that a chat needs is broken."""
    database = open_database(books.database_url)
    try:
        rows, balances, collections, differences = await _read(database, books.workspaces)
        mispriced = await _mispriced(database)
        wrong = await database.read(wrong_adjustments)
        leaves = await database.read(partial(leaves_of_workspaces, workspaces=books.workspaces))
        raised = await database.read(
            lambda c: c.execute(_RAISED, {"workspaces": list(books.workspaces)}).all()
        )
    finally:
        await database.close()
    by_request: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        by_request[row.request_id].append(row)
    tally = Tally(runs=1, requests=len(answers), collections=len(collections))
    for answer in answers:
        events = by_request.pop(answer.ask.request_id, [])
        _judge(tally, answer, events, books, everyone_lives)
    if not may_err:
        tally.violations += [
            f"an error of the server: {_described(a)}" for a in answers if INTERNAL in a.body
        ]
    if not chats_may_fail:
        lost = [answer for answer in answers if answer.ask.kind in CHATS and (answer.status or 0) >= 500]
        tally.violations += [f"a chat was lost: {_described(answer)}" for answer in lost]
    tally.leaves, tally.leaves_lost, tally.leaves_doubled = leaves.found, leaves.lost, leaves.doubled
    tally.violations += leaves.troubles
    tally.violations += [f"an event of no request: {name}" for name in by_request]
    tally.violations += [f"the ledger does not add up: {difference}" for difference in differences]
    tally.violations += [f"pith reconcile finds {one}" for one in mispriced]
    tally.violations += await _spool_troubles(books)
    tally.violations += [f"pith reconcile finds {one}" for one in wrong]
    tally.violations += _balance_troubles(books, rows, balances, raised)
    if books.hook_folder is not None:
        known = [row._mapping for row in collections]
        tally.violations += hook_troubles(books.hook_folder, known, books.workspaces)
    tally.written_off = sum(row.written_off_nano_usd > 0 for row in rows)
    if everyone_lives and tally.written_off:
        # Nobody lost a hold, so everything was within one.
        tally.violations.append(f"{tally.written_off} events are written off, though nobody died")
    return tally


async def _read(
    database: Database, workspaces: Sequence[str]
) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any], list[invariants.Violation]]:
    wanted = {"workspaces": list(workspaces)}
    rows = await database.read(lambda c: c.execute(_EVENTS, wanted).all())
    balances = await database.read(lambda c: c.execute(_BALANCES, wanted).all())
    collections = await database.read(lambda c: c.execute(_COLLECTIONS, wanted).all())
    return rows, balances, collections, await database.read(invariants.differences)


async def _mispriced(database: Database) -> list[MispricedEvent]:
    """Charges, savings and compressions that are not what they should be, and pairs of which one is missing."""
    return await database.read(partial(mispriced_events, from_id="", until_id="g"))


def _balance_troubles(
    books: Books, rows: Sequence[Any], balances: Sequence[Any], raised: Sequence[Any]
) -> list[str]:
    # What adjustments raised is posted too.
    owed = Counter({row.workspace_id: int(row.nano_usd) for row in raised})
    for row in rows:
        owed[row.workspace_id] += _cost(books, row) - row.written_off_nano_usd
    return [
        f"posted and held of {row.id} are {tuple(row)[1:]}, and its events cost {owed[row.id]}"
        for row in balances
        if (row.posted_nano_usd, row.held_nano_usd) != (owed[row.id], 0)
    ]


async def _spool_troubles(books: Books) -> list[str]:
    troubles = []
    for path in books.spool_paths:
        spool = Spool(path)
        try:
            left = [*await spool.waiting(), *await spool.refused()]
            troubles += [f"left in the spool {path.name}: {row.event}: {row.refusal}" for row in left]
        finally:
            await spool.close()
    return troubles


def _judge(tally: Tally, answer: Answer, events: Sequence[Any], books: Books, everyone_lives: bool) -> None:
    began = everyone_lives and answer.tokens_seen > 0
    expected = len(answer.bills) or int(began)
    # A batch that broke off was charged for what it had done.
    most = len(answer.bills) or {"batch": answer.ask.n, "squeezed": 2}.get(answer.ask.kind, 1)
    tally.completed += answer.completed
    tally.compressions += answer.completed and answer.ask.kind not in CHATS
    tally.pairs += answer.ask.kind == "squeezed" and len(answer.bills) == 2
    tally.cached += (
        answer.ask.kind == "squeezed" and answer.prompt_status == "applied" and len(answer.bills) == 1
    )
    tally.whole += answer.ask.kind == "squeezed" and answer.prompt_status == "failed"
    tally.degraded += answer.is_degraded
    tally.expected += expected
    tally.found += min(expected, len(events))
    tally.lost += max(0, expected - len(events))
    tally.doubled += max(0, len(events) - most)
    tally.also_billed += len(events) if not expected else 0
    troubles = [] if len(events) >= expected else [f"it has {len(events)} usage events of {expected}"]
    if (answer.status or 0) >= 400 and any(event.outcome != "completed" for event in events):
        # A completed one was cut off between its settlement and its first byte, by a server that stops.
        troubles.append("it is charged and was refused")
    if len(events) > most:
        troubles.append(f"it has {len(events)} usage events")
    for event in events:
        troubles += _event_troubles(answer, event, books)
    troubles += _bill_troubles(answer, events)
    if answer.ask.kind in CHATS:
        troubles += pair_troubles(answer, events, books.prices)
    tally.violations += [f"{trouble}: {_described(answer)}" for trouble in troubles]


def _event_troubles(answer: Answer, event: Any, books: Books) -> list[str]:
    troubles = []
    if answer.ask.kind in CHATS and event.model_id == answer.ask.model:
        generated = books.generated(answer.ask.request_id)
        if not answer.tokens_seen <= event.completion_tokens <= generated:
            troubles.append(
                f"{event.completion_tokens} tokens are billed, {generated} were generated and "
                f"{answer.tokens_seen} delivered"
            )
    if event.cost_nano_usd != _cost(books, event):
        troubles.append(f"{event.cost_nano_usd} is charged, and {_cost(books, event)} is owed")
    return troubles


def _bill_troubles(answer: Answer, events: Sequence[Any]) -> list[str]:
    """A whole reply's bills are its events, and those of a chat are for all that was asked for."""
    if not answer.completed:
        return []
    told, chat = sorted(answer.bills), answer.bills[0]
    has_costs = told[0].usd is not None
    recorded = sorted(
        Bill(event.prompt_tokens, event.completion_tokens, event.cost_nano_usd / 10**9 if has_costs else None)
        for event in events
    )
    troubles = [] if told == recorded else [f"the client was told {told}, and recorded is {recorded}"]
    troubles += [f"its outcome is {event.outcome}" for event in events if event.outcome != "completed"]
    ask = answer.ask
    if ask.kind in CHATS and chat.completion_tokens != ask.max_tokens * ask.n:
        troubles.append(f"{chat.completion_tokens} tokens came, of {ask.max_tokens} in {ask.n} choices")
    return troubles


def _cost(books: Books, event: Any) -> int:
    price = books.prices[event.model_id]
    return price.nano_usd(
        event.prompt_tokens,
        event.completion_tokens,
        cached_tokens=event.cached_tokens,
        minimum=event.outcome != "failed",
    )


def _described(answer: Answer) -> str:
    ask = answer.ask
    end = "completed" if answer.completed else "left" if answer.left else answer.trouble or "not completed"
    kind = ask.kind if ask.manner == "plain" else f"{ask.kind}, {ask.manner}"
    how = f"status {answer.status}, {answer.tokens_seen} tokens seen, {end}"
    return f"{ask.request_id} ({kind} of {ask.n}, {ask.model}, {ask.max_tokens} tokens, stream={ask.stream}: {how})"


def statuses(answers: Sequence[Answer]) -> str:
    """How the requests of a run ended, for its line in the log."""
    ends = Counter(
        "completed" if answer.completed else "left" if answer.left else str(answer.status or "no reply")
        for answer in answers
    )
    return ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
