"""What upkeep does for webhooks besides delivering: it looks at the limits, and deletes what is old."""

from collections.abc import Callable, Sequence
from functools import partial

from billing.store.database import Database, PatientWork
from billing.webhooks import delivery_log, delivery_sql, limit_alerts, old_alerts
from billing.webhooks.refusals import Refusals, RefusedLimit

MOST_TURNS = 50


class LimitWatch:
    """Announces which limits are 50, 80 and 100% used. Any number of servers may do so at once."""

    def __init__(self, database: Database, refusals: Refusals) -> None:
        self._database = database
        self._refusals = refusals

    async def once(self) -> int:
        """How many were announced. Raises `LedgerUnavailable`."""
        count = 0
        if await self._database.read(limit_alerts.has_fallen):
            await self._database.write(PatientWork(limit_alerts.forget_fallen))
        for _ in range(MOST_TURNS):
            reached = await self._database.read(limit_alerts.newly_reached)
            if not reached:
                break
            # What was read is announced as it was read: the balance may have moved on since.
            announce = partial(limit_alerts.announce, reached=reached)
            count += await self._database.write(PatientWork(announce))
        # Each costs a statement: in parts, and after those that only reading finds.
        for _ in range(MOST_TURNS):
            refused = self._refusals.take(limit_alerts.AT_ONCE)
            if not refused:
                break
            count += await self._announce_refused(refused)
        return count

    async def _announce_refused(self, refused: Sequence[RefusedLimit]) -> int:
        reached = await self._database.read(partial(limit_alerts.newly_refused, refused=refused))
        if not reached:
            return 0
        return await self._database.write(PatientWork(partial(limit_alerts.announce, reached=reached)))


async def tidy(database: Database, waiting: Callable[[int], None]) -> None:
    """Deletes what is old, and tells `waiting` how many deliveries wait. Raises `LedgerUnavailable`."""
    for _ in range(MOST_TURNS):
        if await database.write(PatientWork(delivery_log.tidy)) < delivery_log.DELETED_AT_ONCE:
            break
    if await database.read(old_alerts.has_old):
        for _ in range(MOST_TURNS):
            if await database.write(PatientWork(old_alerts.forget_old)) < old_alerts.DELETED_AT_ONCE:
                break
    waiting(await database.read(delivery_sql.count_waiting))
