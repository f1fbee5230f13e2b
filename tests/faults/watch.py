"""Looks at the ledger all through a run: what must hold at every instant is read in one statement, of one moment."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import bindparam, text

from billing.errors import BillingError
from billing.store.database import Database, open_database

LOOK_EVERY_S = 0.01
TIMEOUT_S = 1.0
_BALANCES = text(
    """
SELECT w.id, w.posted_nano_usd AS posted, w.held_nano_usd AS held, w.collected_nano_usd AS collected,
    w.credited_nano_usd AS credited, w.spend_limit_nano_usd AS spend_limit,
    (SELECT coalesce(sum(CASE WHEN a.nano_usd > 0 THEN a.nano_usd ELSE 0 END), 0)
        FROM adjustments a WHERE a.workspace_id = w.id) AS raised,
    (SELECT coalesce(sum(CASE WHEN a.nano_usd < 0 THEN -a.nano_usd ELSE 0 END), 0)
        FROM adjustments a WHERE a.workspace_id = w.id) AS lowered,
    (SELECT coalesce(sum(h.amount_nano_usd), 0) FROM holds h WHERE h.workspace_id = w.id) AS holds,
    (SELECT coalesce(sum(e.cost_nano_usd - e.written_off_nano_usd), 0)
        FROM usage_events e WHERE e.workspace_id = w.id) AS charged,
    (SELECT coalesce(sum(CASE WHEN e.offline THEN e.cost_nano_usd ELSE 0 END), 0)
        FROM usage_events e WHERE e.workspace_id = w.id) AS offline,
    (SELECT coalesce(sum(c.nano_usd), 0)
        FROM collections c WHERE c.workspace_id = w.id AND c.state <> 'void') AS cut
FROM workspaces w WHERE w.id IN :workspaces"""
).bindparams(bindparam("workspaces", expanding=True))
_MONTHS = text(
    """
SELECT w.id, e.month, sum(e.cost_nano_usd - e.written_off_nano_usd) + (SELECT coalesce(sum(a.nano_usd), 0)
        FROM adjustments a WHERE a.workspace_id = w.id AND a.month = e.month) AS charged,
    sum(CASE WHEN e.offline THEN e.cost_nano_usd ELSE 0 END) AS offline,
    CASE WHEN e.month = w.month THEN w.month_posted_nano_usd ELSE
        (SELECT m.posted_nano_usd FROM workspace_months m WHERE m.workspace_id = w.id AND m.month = e.month)
    END AS stored,
    w.monthly_limit_nano_usd AS monthly_limit
FROM workspaces w JOIN usage_events e ON e.workspace_id = w.id
WHERE w.id IN :workspaces GROUP BY w.id, e.month, w.month, w.month_posted_nano_usd, w.monthly_limit_nano_usd"""
).bindparams(bindparam("workspaces", expanding=True))
_KEYS = text(
    """
SELECT k.id, k.posted_nano_usd AS posted, k.held_nano_usd AS held, k.spend_limit_nano_usd AS spend_limit,
    (SELECT coalesce(sum(e.cost_nano_usd - e.written_off_nano_usd), 0) FROM usage_events e
        JOIN api_keys o ON o.id = e.key_id WHERE coalesce(o.budget_key_id, o.id) = k.id) AS charged,
    (SELECT coalesce(sum(CASE WHEN e.offline THEN e.cost_nano_usd ELSE 0 END), 0) FROM usage_events e
        JOIN api_keys o ON o.id = e.key_id WHERE coalesce(o.budget_key_id, o.id) = k.id) AS offline,
    (SELECT coalesce(sum(h.amount_nano_usd), 0) FROM holds h
        JOIN api_keys o ON o.id = h.key_id WHERE coalesce(o.budget_key_id, o.id) = k.id) AS holds
FROM api_keys k JOIN projects p ON p.id = k.project_id
WHERE p.workspace_id IN :workspaces AND k.month IS NOT NULL"""
).bindparams(bindparam("workspaces", expanding=True))


@dataclass
class Watcher:
    """Polls until it is stopped. While the ledger is away there is nothing to see."""

    database_url: str
    workspaces: Sequence[str]
    looks: int = 0
    violations: list[str] = field(default_factory=list)
    _stopping: bool = False

    async def watch(self) -> None:
        database = open_database(self.database_url, timeout_s=TIMEOUT_S, pool_size=1)
        try:
            while not self._stopping:
                await self._look(database)
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            await database.close()

    def stop(self) -> None:
        self._stopping = True

    async def _look(self, database: Database) -> None:
        wanted = {"workspaces": list(self.workspaces)}
        try:
            for row in await database.read(lambda c: c.execute(_BALANCES, wanted).all()):
                self._check_balance(row)
            for row in await database.read(lambda c: c.execute(_MONTHS, wanted).all()):
                self._check_month(row)
            for row in await database.read(lambda c: c.execute(_KEYS, wanted).all()):
                self._check_key(row)
        except BillingError:
            return
        self.looks += 1

    def _check_balance(self, row: Any) -> None:
        stored = (row.posted, row.credited, row.held, row.collected)
        rebuilt = (row.charged + row.raised, row.lowered, row.holds, row.cut)
        if stored != rebuilt:
            self._violate(
                f"{row.id}: posted, credited, held, collected were {stored}, and added up to {rebuilt}"
            )
        spent = row.posted - row.credited
        if row.spend_limit is not None and spent > row.spend_limit + row.offline:
            self._violate(
                f"{row.id}: {spent} was spent of a limit of {row.spend_limit} (and {row.offline} offline)"
            )

    def _check_month(self, row: Any) -> None:
        if row.charged != row.stored:
            self._violate(f"{row.id}: posted in {row.month} was {row.stored}, and added up to {row.charged}")
        if row.monthly_limit is not None and row.charged > row.monthly_limit + row.offline:
            self._violate(
                f"{row.id}: posted in {row.month} was {row.charged} of a limit of {row.monthly_limit} "
                f"(and {row.offline} offline)"
            )

    def _check_key(self, row: Any) -> None:
        if (row.posted, row.held) != (row.charged, row.holds):
            self._violate(
                f"key {row.id}: posted and held were {(row.posted, row.held)}, and added up to "
                f"{(row.charged, row.holds)}"
            )
        if row.spend_limit is not None and row.posted > row.spend_limit + row.offline:
            self._violate(f"key {row.id}: {row.posted} was posted of a limit of {row.spend_limit}")

    def _violate(self, what: str) -> None:
        if len(self.violations) < 20:
            self.violations.append(what)
