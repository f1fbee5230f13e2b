"""Holds what clients saw, and what the engine wrote down, against the ledger after a run."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import text

from billing import audit
from billing.database import Database, open_database
from billing.errors import LedgerUnavailable
from billing.spool import Spool
from tests.faults.client import Answer
from tests.faults.prices import PinnedPrice

SETTLED_S = 20.0
_HOLDS = text("SELECT count(*) FROM holds WHERE workspace_id = :workspace")
_EVENTS = text("SELECT * FROM usage_events WHERE workspace_id = :workspace")
_BALANCE = text("SELECT posted_nano_usd, held_nano_usd FROM workspaces WHERE id = :workspace")


@dataclass
class Tally:
    """The figures of one run, or of many. `degraded`: of the completed, those whose usage went through the spool.
    `also_billed`: events of replies that the client saw no end of."""

    runs: int = 0
    requests: int = 0
    completed: int = 0
    degraded: int = 0
    expected: int = 0
    found: int = 0
    lost: int = 0
    doubled: int = 0
    also_billed: int = 0
    violations: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        for name in vars(other):
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(frozen=True)
class Books:
    """Where a run's money is written down, and what it is held against."""

    database_url: str
    spool_path: Path
    workspace_id: str
    prices: Mapping[str, PinnedPrice]
    # By request id, how many tokens were generated at most.
    generated: Callable[[str], int]


async def settled(books: Books, *, within_s: float = SETTLED_S) -> None:
    """Wait until no hold is open and nothing waits in the spool; raise `TimeoutError` at the deadline."""
    database, spool = open_database(books.database_url), Spool(books.spool_path)
    wanted = {"workspace": books.workspace_id}
    deadline, state = time.monotonic() + within_s, "the ledger cannot be read"
    try:
        while True:
            try:
                holds = await database.read(lambda c: c.execute(_HOLDS, wanted).scalar_one())
                waiting = await spool.count_waiting()
                state = f"{holds} holds are open and {waiting} events wait in the spool"
                if holds == waiting == 0:
                    return
            except LedgerUnavailable as error:
                state = str(error)
            if time.monotonic() > deadline:
                raise TimeoutError(f"not settled within {within_s:g} s: {state}")
            await asyncio.sleep(0.02)
    finally:
        await spool.close()
        await database.close()


async def check(books: Books, answers: Sequence[Answer], *, everyone_lives: bool) -> Tally:
    """With `everyone_lives`, also a stream that only began must have its event."""
    database = open_database(books.database_url)
    try:
        rows, balance, differences = await _read(database, books.workspace_id)
    finally:
        await database.close()
    by_request: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        by_request[row.request_id].append(row)
    tally = Tally(runs=1, requests=len(answers))
    for answer in answers:
        events = by_request.pop(answer.ask.request_id, [])
        _judge(tally, answer, events, books, everyone_lives)
    tally.violations += [f"an event of no request: {name}" for name in by_request]
    tally.violations += [f"the ledger does not add up: {difference}" for difference in differences]
    tally.violations += await _spool_troubles(books)
    owed = sum(_cost(books, row) for row in rows)
    if (balance.posted_nano_usd, balance.held_nano_usd) != (owed, 0):
        tally.violations.append(f"posted and held are {tuple(balance)}, and the events cost {owed}")
    return tally


async def _read(database: Database, workspace_id: str) -> tuple[Sequence[Any], Any, list[audit.Difference]]:
    wanted = {"workspace": workspace_id}
    rows = await database.read(lambda c: c.execute(_EVENTS, wanted).all())
    balance = await database.read(lambda c: c.execute(_BALANCE, wanted).one())
    return rows, balance, await database.read(audit.differences)


async def _spool_troubles(books: Books) -> list[str]:
    spool = Spool(books.spool_path)
    try:
        left = [*await spool.waiting(), *await spool.refused()]
        return [f"left in the spool: {row.event}: {row.refusal}" for row in left]
    finally:
        await spool.close()


def _judge(tally: Tally, answer: Answer, events: Sequence[Any], books: Books, everyone_lives: bool) -> None:
    must_be_billed = answer.completed or (everyone_lives and answer.tokens_seen > 0)
    tally.completed += answer.completed
    receipt = answer.receipt
    tally.degraded += receipt is not None and receipt["service"]["metering"]["status"] == "degraded"
    tally.expected += must_be_billed
    tally.found += must_be_billed and len(events) >= 1
    tally.lost += must_be_billed and not events
    tally.doubled += max(0, len(events) - 1)
    tally.also_billed += not must_be_billed and len(events) >= 1
    troubles = [] if events or not must_be_billed else ["it has no usage event"]
    if (answer.status or 0) >= 400 and any(event.outcome != "completed" for event in events):
        # A completed one was cut off between its settlement and its first byte, by a server that stops.
        troubles.append("it is charged and was refused")
    if len(events) > 1:
        troubles.append(f"it has {len(events)} usage events")
    for event in events:
        troubles += _event_troubles(answer, event, books)
    tally.violations += [f"{trouble}: {_described(answer)}" for trouble in troubles]


def _event_troubles(answer: Answer, event: Any, books: Books) -> list[str]:
    troubles = []
    generated = books.generated(answer.ask.request_id)
    if not answer.tokens_seen <= event.completion_tokens <= generated:
        troubles.append(
            f"{event.completion_tokens} tokens are billed, {generated} were generated and "
            f"{answer.tokens_seen} delivered"
        )
    if event.cost_nano_usd != _cost(books, event):
        troubles.append(f"{event.cost_nano_usd} is charged, and {_cost(books, event)} is owed")
    receipt = answer.receipt
    if receipt is not None:
        told = (
            receipt["usage"]["prompt_tokens"],
            receipt["usage"]["completion_tokens"],
            receipt["service"]["billing"]["request_cost_usd"],
            "completed",
        )
        recorded = (
            event.prompt_tokens,
            event.completion_tokens,
            event.cost_nano_usd / 10**9,
            event.outcome,
        )
        if told != recorded or event.completion_tokens != answer.ask.max_tokens:
            troubles.append(f"the client was told {told}, and recorded is {recorded}")
    return troubles


def _cost(books: Books, event: Any) -> int:
    price = books.prices[event.model_id]
    return price.nano_usd(event.prompt_tokens, event.completion_tokens, minimum=event.outcome != "failed")


def _described(answer: Answer) -> str:
    ask = answer.ask
    end = "completed" if answer.completed else "left" if answer.left else answer.trouble or "not completed"
    how = f"status {answer.status}, {answer.tokens_seen} tokens seen, {end}"
    return f"{ask.request_id} ({ask.model}, {ask.max_tokens} tokens, stream={ask.stream}: {how})"


def statuses(answers: Sequence[Answer]) -> str:
    """How the requests of a run ended, for its line in the log."""
    ends = Counter(
        "completed" if answer.completed else "left" if answer.left else str(answer.status or "no reply")
        for answer in answers
    )
    return ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
