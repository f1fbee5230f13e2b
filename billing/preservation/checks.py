"""Checks of compressed chats in the ledger's database: each written once, read in their order, deleted when old.

They say how a reply that was given after a compressed prompt is scored after the whole one, by the engine that gave it.
"""

import asyncio
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from sqlalchemy import Connection, delete, select

from billing.preservation import sizes
from billing.preservation.sizes import Measure, SizedFor
from billing.store.database import Database, PatientWork
from billing.store.dates import within
from billing.store.schema import preservation_checks
from billing.store.statements import inserting

# Longer than a year, so that a month can be compared with the one a year before.
KEPT_DAYS = 400
# Deleted in one transaction, and the pause after it, so that no writer waits long.
DELETED_AT_ONCE = 1000
PAUSE_S = 0.01
# The checks that a report or a controller reads at the most, the newest: on PostgreSQL they are summed in the event
# loop, for a tenth of a second.
MOST_READ = 20_000
# A chat's nats a token count within these bounds, without which no interval could be given: a reply whose each token is
# e^4 = 55 times less likely is as lost as one can be.
LOWEST_NATS, HIGHEST_NATS = -1.0, 4.0

_c = preservation_checks.c


@dataclass(frozen=True, slots=True, kw_only=True)
class PreservationCheck:
    """One chat. `kinds` are those of its compressed blocks, in order and with a `+` between two; tokens of the prompts
    are the engine's.

    `nats_per_token` is the mean, over the `scored_tokens` of its reply, of the log probability after the prompt that
    was sent less that after the whole one: 0 where nothing is lost, and more the more the reply depends on what was
    left out. `agreeing_tokens`: places at which both prompts have the same likeliest token.
    """

    event_id: str
    request_id: str
    workspace_id: str
    project_id: str
    model_id: str
    compression_model_id: str
    settled_at: datetime
    kinds: str
    target_ratio: float | None
    keep: float | None
    original_tokens: int
    sent_tokens: int
    scored_tokens: int
    agreeing_tokens: int
    nats_per_token: float

    @property
    def agreement(self) -> float:
        return self.agreeing_tokens / self.scored_tokens

    def shift(self, measure: Measure) -> float:
        """What compression changed in the reply: 0 is nothing."""
        return self.nats_per_token if measure == "nats" else 1 - self.agreement


def record(connection: Connection, check: PreservationCheck) -> bool:
    """Write it, unless its chat has one already; whether it was written."""
    new = inserting(connection.dialect.name, preservation_checks).values(**asdict(check))
    return bool(connection.execute(new.on_conflict_do_nothing()).rowcount)


def checks(
    connection: Connection,
    *,
    workspace_id: str | None = None,
    project_id: str | None = None,
    model_id: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = MOST_READ,
) -> list[PreservationCheck]:
    """The newest `limit` of chats settled from `since` to before `until`, the oldest first."""
    found = select(preservation_checks).order_by(_c.settled_at.desc(), _c.event_id.desc()).limit(limit)
    for column, wanted in (
        (_c.workspace_id, workspace_id),
        (_c.project_id, project_id),
        (_c.model_id, model_id),
    ):
        if wanted is not None:
            found = found.where(column == wanted)
    rows = connection.execute(within(found, _c.settled_at, since, until)).all()
    return [PreservationCheck(**row._mapping) for row in reversed(rows)]


def delete_some(connection: Connection, before: datetime, limit: int) -> int:
    """Delete up to `limit` of chats settled before then; how many."""
    old = select(_c.event_id).where(_c.settled_at < before).limit(limit)
    return int(connection.execute(delete(preservation_checks).where(_c.event_id.in_(old))).rowcount)


class PreservationStore:
    """Every method raises `LedgerUnavailable`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(
        self, check: PreservationCheck, sized: SizedFor | None = None, now: datetime | None = None
    ) -> bool:
        """Write it, unless its chat has one already; whether it was written. Of a chat that was `sized` by a bound, it
        is a sample for its project's size, `now`."""

        def work(connection: Connection) -> bool:
            is_new = record(connection, check)
            if is_new and sized is not None:
                shift = check.shift(sized.bound.measure)
                sizes.add(connection, sized, [shift], now or check.settled_at)
            return is_new

        # A power cut may lose the last ones, which are samples.
        return await self._database.write(PatientWork(work), durable=False)

    async def read(self, **which: Any) -> list[PreservationCheck]:
        """As `checks`."""
        return await self._database.read(lambda connection: checks(connection, **which))

    async def delete_old(self, now: datetime, *, at_once: int = DELETED_AT_ONCE) -> None:
        """Delete those of chats that were settled `KEPT_DAYS` ago."""
        before = now - timedelta(days=KEPT_DAYS)
        step = PatientWork(lambda connection: delete_some(connection, before, at_once))
        for _ in count():
            if await self._database.write(step, durable=False) < at_once:
                return
            await asyncio.sleep(PAUSE_S)
