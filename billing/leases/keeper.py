"""Keeps the leases of holds: renews this server's, and closes those that are unused or that no owner renews."""

import asyncio
import logging
from functools import partial

from billing.errors import LedgerUnavailable
from billing.leases import lease_sql
from billing.leases.dead_owners import DeadOwners
from billing.leases.lease_times import LeaseTimes
from billing.spool.spool import Spool
from billing.store.database import Database

log = logging.getLogger(__name__)


class LeaseKeeper:
    """A hold lives while its request runs here (`begin` to `end`), or its usage waits in this server's spool.

    Any other hold of this owner in the ledger was meant to be closed, and is: its release failed, or the answer to its
    opening was lost. So it is enough to remember that there may be some (`mark_possibly_open`).
    """

    def __init__(self, database: Database, spool: Spool, *, owner: str, times: LeaseTimes) -> None:
        self.owner = owner
        self.times = times
        self._database = database
        self._spool = spool
        self._running: set[str] = set()
        self._dead_owners = DeadOwners(times)
        self._unknown_holds_possible = False
        self._renewed_at: float | None = None

    @property
    def may_have_unknown_holds(self) -> bool:
        """Whether the ledger may have a hold of this server that belongs to no request here."""
        return self._unknown_holds_possible

    def begin(self, event_id: str) -> None:
        """Call it before the hold is opened."""
        self._running.add(event_id)

    def end(self, event_id: str) -> None:
        """The hold is closed, or its usage is in the spool."""
        self._running.discard(event_id)

    def mark_possibly_open(self, event_id: str) -> None:
        """The hold is no longer needed, and may still be open in the ledger."""
        self._running.discard(event_id)
        self._unknown_holds_possible = True

    async def keep(self) -> None:
        """Does what is due; to be called about once a second. Raises `LedgerUnavailable`."""
        now = asyncio.get_running_loop().time()
        if self._renewed_at is None or now - self._renewed_at >= self.times.renew_every_s:
            await self.renew_and_sweep()
        elif self._unknown_holds_possible:
            await self.close_unknown()

    async def renew_and_sweep(self) -> None:
        """Renews leases, closes this server's unknown holds, and then those of dead owners.

        Raises `LedgerUnavailable`; then the others' leases are watched from scratch, since their owners renew them
        first when the ledger is back.
        """
        try:
            await self._database.write(
                partial(lease_sql.renew, owner=self.owner, times=self.times), durable=False
            )
            spooled = await self._spool.waiting_ids()
            if spooled:
                await self._database.write(
                    partial(lease_sql.adopt, owner=self.owner, event_ids=spooled, times=self.times)
                )
            await self.close_unknown()
            await self._sweep()
        except LedgerUnavailable:
            self._dead_owners.forget()
            raise
        self._renewed_at = asyncio.get_running_loop().time()

    async def close_unknown(self) -> int:
        """Closes the holds of this owner that belong to no request and no spooled usage; returns how many."""
        self._unknown_holds_possible = False
        try:
            owned = await self._database.read(partial(lease_sql.owned, owner=self.owner))
            # In this order: usage goes into the spool before its request ends here.
            unknown = set(owned) - self._running
            if unknown:
                unknown -= await self._spool.waiting_ids()
            if not unknown:
                return 0
            # Holds that were closed meanwhile are gone, and ids are never reused.
            closed = await self._database.write(
                partial(lease_sql.close_own, event_ids=unknown, owner=self.owner)
            )
        except LedgerUnavailable:
            self._unknown_holds_possible = True
            raise
        # Those that another transaction had locked are looked for again.
        self._unknown_holds_possible = self._unknown_holds_possible or closed < len(unknown)
        if closed:
            log.warning("closed %d holds whose release or whose opening had not been answered", closed)
        return closed

    async def _sweep(self) -> None:
        found = await self._database.read(partial(lease_sql.neglected, owner=self.owner, times=self.times))
        # Read after the leases: what a dead server left in this spool is charged before its hold is closed.
        spared = await self._spool.waiting_ids() if found else frozenset()
        dead = self._dead_owners.look(found, now=asyncio.get_running_loop().time(), spared=spared)
        if not dead:
            return
        closed = await self._database.write(partial(lease_sql.close_ended, event_ids=dead, times=self.times))
        log.warning("closed %d holds of servers that do not renew them", closed)
