"""Credits, adjustments and refunds while the service is under load and broken: each is asked for until answered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import bindparam, text

from billing.adjustments.adjustment import Adjustment, AdjustmentRefused
from billing.adjustments.adjustments import Adjustments
from billing.errors import LedgerUnavailable
from billing.store.database import Database, open_database

TIMEOUT_S = 1.0
MOST_NANO_USD = 1_000_000
KINDS = ("credit", "adjustment", "adjustment", "refund")
_SOME_EVENT = text(
    "SELECT event_id FROM usage_events WHERE workspace_id = :id ORDER BY event_id DESC LIMIT 1"
)
_KEYS = text(
    "SELECT idempotency_key, count(*) AS times, min(id) AS id FROM adjustments WHERE workspace_id IN :workspaces "
    "GROUP BY idempotency_key"
).bindparams(bindparam("workspaces", expanding=True))


@dataclass
class Adjuster:
    """Adjusts one workspace after the other until it is stopped. `made` is what was answered, by key."""

    database_url: str
    workspaces: Sequence[str]
    rng: random.Random
    made: dict[str, Adjustment] = field(default_factory=dict)
    _stopping: bool = False

    async def adjust(self) -> None:
        database = open_database(self.database_url, timeout_s=TIMEOUT_S, pool_size=2)
        try:
            number = 0
            while not self._stopping:
                number += 1
                # Two at once with the same key, as a program does whose first answer is late.
                ask = await self._next(database, f"key {number}")
                await asyncio.gather(*(self._until_answered(ask) for _ in range(2)))
        finally:
            await database.close()

    def stop(self) -> None:
        self._stopping = True

    async def troubles(self) -> list[str]:
        """What was answered and is not there once, and what is there and was never asked for."""
        database = open_database(self.database_url)
        try:
            wanted = {"workspaces": list(self.workspaces)}
            rows = await database.read(lambda c: c.execute(_KEYS, wanted).all())
        finally:
            await database.close()
        found = {row.idempotency_key: row for row in rows}
        troubles = [
            f"adjustment {key} is there {row.times} times" for key, row in found.items() if row.times > 1
        ]
        return troubles + [f"adjustment {key} is lost" for key in self.made.keys() - found.keys()]

    async def _next(self, database: Database, key: str) -> _Ask:
        workspace_id, kind = self.rng.choice(self.workspaces), self.rng.choice(KINDS)
        amount = self.rng.randrange(1, MOST_NANO_USD)
        event_id = await self._some_event(database, workspace_id) if kind == "refund" else None
        if event_id is not None:
            return _Ask(database, "refund", event_id, None, key)
        # There is nothing to refund yet.
        kind = "credit" if kind == "refund" else kind
        return _Ask(database, kind, workspace_id, self.rng.choice((-1, 1)) * amount, key)

    async def _some_event(self, database: Database, workspace_id: str) -> str | None:
        wanted = {"id": workspace_id}
        try:
            return await database.read(lambda c: c.execute(_SOME_EVENT, wanted).scalar_one_or_none())
        except LedgerUnavailable:
            return None

    async def _until_answered(self, ask: _Ask) -> None:
        while True:
            try:
                made = await ask.send()
                break
            except AdjustmentRefused:
                return
            except LedgerUnavailable:
                await asyncio.sleep(0.02)
        assert self.made.setdefault(ask.key, made) == made


@dataclass(frozen=True)
class _Ask:
    """`subject` is a workspace, or the event that a refund is of; `nano_usd` is signed for an adjustment alone."""

    database: Database
    kind: str
    subject: str
    nano_usd: int | None
    key: str

    async def send(self) -> Adjustment:
        adjustments, given = Adjustments(self.database, actor="faults"), self._given()
        if self.nano_usd is None:
            return await adjustments.refund(self.subject, **given)
        if self.kind == "credit":
            return await adjustments.credit(self.subject, nano_usd=abs(self.nano_usd), **given)
        return await adjustments.adjust(self.subject, nano_usd=self.nano_usd, **given)

    def _given(self) -> dict[str, str]:
        return {"reason": "faults", "idempotency_key": self.key}
