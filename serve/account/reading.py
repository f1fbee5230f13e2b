"""Reads of the ledger that customers ask for: one at a time in this process, so that requests always find a reader."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from billing.books.period_usage import PeriodUsage, period_usage
from billing.books.spending import Spending, spending
from billing.caller import Caller
from billing.errors import RateLimited
from billing.rate_limits.rate_limits import NO_STATE
from billing.store.database import Database
from serve.account.usage_query import UsageQuery

MAX_WAITING = 8


class AccountReader:
    """Each project has a bounded number of reads that wait; the rest is refused with `RateLimited`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._reading = asyncio.Lock()
        self._waiting: Counter[str] = Counter()

    async def usage(self, caller: Caller, asked: UsageQuery) -> PeriodUsage:
        """With one row more than asked for where there are more. Raises `LedgerUnavailable`."""
        read = partial(
            period_usage,
            by=asked.by,
            workspace_id=caller.workspace_id,
            project_id=caller.project_id,
            key_id=caller.key_id if asked.scope == "key" else None,
            since=asked.since,
            until=asked.until,
            limit=asked.limit + 1,
        )
        async with self._turn(caller.project_id):
            return await self._database.read(read)

    async def spending(self, caller: Caller) -> Spending:
        """Raises `LedgerUnavailable`."""
        async with self._turn(caller.project_id):
            return await self._database.read(lambda c: spending(c, caller.workspace_id, caller.key_id))

    @asynccontextmanager
    async def _turn(self, project_id: str) -> AsyncIterator[None]:
        if self._waiting[project_id] >= MAX_WAITING:
            raise RateLimited(which="in_flight", limit=MAX_WAITING, retry_after_s=1, state=NO_STATE)
        self._waiting[project_id] += 1
        try:
            async with self._reading:
                yield
        finally:
            self._waiting[project_id] -= 1
            if not self._waiting[project_id]:
                del self._waiting[project_id]
