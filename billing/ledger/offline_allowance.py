"""What a workspace may spend while the ledger is down: bounded here, since its limits cannot be checked."""

from collections import Counter
from collections.abc import Mapping

from billing.errors import AllowanceSpent, LedgerUnavailable
from billing.ledger.spool import Spool
from billing.usage import Hold


class OfflineAllowance:
    """Counts, for each workspace, the worst cases of requests under way and the cost of usage in the spool.

    The spool outlives its server, so a restart begins with what was spent before it.
    """

    def __init__(self, spool: Spool, *, nano_usd: int) -> None:
        self._spool = spool
        self._nano_usd = nano_usd
        self._open: Counter[str] = Counter()
        self._spooled: Counter[str] | None = None
        self._changes = 0

    @property
    def is_on(self) -> bool:
        return self._nano_usd > 0

    async def take(self, hold: Hold) -> None:
        """Sets the hold's amount aside. Raises `AllowanceSpent`, `SpoolFull` or `LedgerUnavailable`."""
        if not self.is_on:
            raise LedgerUnavailable("the ledger is unavailable")
        await self._spool.require_room()
        spooled = await self._costs()
        # Nothing is awaited from here on, or two requests could take the same money.
        spent = self._open[hold.workspace_id] + spooled.get(hold.workspace_id, 0)
        if spent + hold.amount_nano_usd > self._nano_usd:
            raise AllowanceSpent(self._nano_usd)
        self._open[hold.workspace_id] += hold.amount_nano_usd

    def free(self, hold: Hold) -> None:
        """Gives back what `take` set aside."""
        self._open[hold.workspace_id] -= hold.amount_nano_usd
        if self._open[hold.workspace_id] <= 0:
            del self._open[hold.workspace_id]

    def spend(self, workspace_id: str, nano_usd: int) -> None:
        """Counts usage that went to the spool."""
        self._changes += 1
        if self._spooled is not None:
            self._spooled[workspace_id] += nano_usd

    def recount(self) -> None:
        """Forgets what the spool held: some of it is in the ledger now."""
        self._changes += 1
        self._spooled = None

    async def _costs(self) -> Mapping[str, int]:
        while self._spooled is None:
            changes = self._changes
            costs = await self._spool.costs_by_workspace()
            # Usage that was spooled while the spool was read may or may not be in these sums: they are read again.
            if changes == self._changes:
                self._spooled = Counter(costs)
        return self._spooled
