"""A circuit breaker for the ledger: requests that can do without it do not all wait while it hangs.

An outage of the ledger is distinguished from a workspace's row that stays locked: then only that workspace does
without it.
"""

import asyncio
from typing import TypeVar

from sqlalchemy import Connection, text

from billing.errors import LedgerUnavailable
from billing.store.database import Database, RowWork

T = TypeVar("T")

# How long until the ledger, or a row of it, is tried again, and how long one request may wait for it.
PAUSE_S = 1.0
LONGEST_WRITE_S = 15.0
# A healthy ledger answers an empty write within this.
PROBE_S = 1.0
MOST_ROWS = 10_000


class CircuitBreaker:
    """If `may_skip`, one request at a time waits for what hangs, and after a failure none does for a moment."""

    def __init__(self, database: Database, *, may_skip: bool) -> None:
        self._database = database
        self._may_skip = may_skip
        # When each may be tried again; what is not here is healthy.
        self._ledger_again_at: float | None = None
        self._row_again_at: dict[str, float] = {}
        self._probe: asyncio.Task[bool] | None = None

    async def write(self, work: RowWork[T], *, durable: bool) -> T:
        """Raises what `Database.write` raises."""
        if not self._may_skip:
            return await self._database.write(work, durable=durable)
        self._require_closed(work.row)
        try:
            result = await self._database.write(work, durable=durable)
        except LedgerUnavailable:
            await self._trip(work.row)
            raise
        except BaseException:
            # It answered.
            self._reset(work.row)
            raise
        self._reset(work.row)
        return result

    def _require_closed(self, row: str) -> None:
        now = asyncio.get_running_loop().time()
        ledger, of_row = self._ledger_again_at, self._row_again_at.get(row)
        if (ledger is not None and now < ledger) or (of_row is not None and now < of_row):
            raise LedgerUnavailable("the ledger is unavailable")
        if ledger is not None:
            self._ledger_again_at = now + LONGEST_WRITE_S
        if of_row is not None:
            self._row_again_at[row] = now + LONGEST_WRITE_S

    def _reset(self, row: str) -> None:
        self._ledger_again_at = None
        self._row_again_at.pop(row, None)

    async def _trip(self, row: str) -> None:
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self._answers())
        answers = await asyncio.shield(self._probe)
        again_at = asyncio.get_running_loop().time() + PAUSE_S
        if not answers:
            self._ledger_again_at = again_at
            return
        self._ledger_again_at = None
        if len(self._row_again_at) >= MOST_ROWS:
            self._row_again_at.clear()
        self._row_again_at[row] = again_at

    async def _answers(self) -> bool:
        try:
            async with asyncio.timeout(PROBE_S):
                await self._database.write(_nothing, durable=False)
        except (LedgerUnavailable, TimeoutError):
            return False
        return True


def _nothing(connection: Connection) -> None:
    connection.execute(text("SELECT 1"))
