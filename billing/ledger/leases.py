"""The SQL of leases, which begin and end by the database's clock (`pith_now()`).

Holds that another transaction has locked are skipped, since it closes them: two that wait for each other's rows
would deadlock. SQLite has one writer, and ignores the clause."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Executable,
    Update,
    bindparam,
    delete,
    func,
    or_,
    select,
    update,
)

from billing.errors import LedgerUnavailable
from billing.ledger import budgets
from billing.ledger.spool import Spool
from billing.store.database import Database
from billing.store.dates import now_s
from billing.store.schema import api_keys, holds, workspaces
from billing.store.statements import in_parts


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """The same on every server of a ledger, hence not settings; tests use shorter ones."""

    ttl_s: float = 60.0
    renew_every_s: float = 15.0
    # An owner counts as dead after this many looks, a renewal apart, that found its lease unrenewed.
    looks: int = 3
    # A lease that ends later than this was granted before the clock was set back.
    absurd_s: float = 600.0
    # For holds of releases without leases.
    ownerless_s: float = 7200.0
    # How long the lines of batches that a process runs, and what it does for a whole batch, are its own.
    batch_s: float = 30.0

    @property
    def due_s(self) -> float:
        """A lease with less left is due for renewal; the leases of short requests never are."""
        return self.ttl_s - self.renew_every_s / 2

    @property
    def neglected_s(self) -> float:
        """A lease with less left would have been renewed twice by a living owner."""
        return self.due_s - self.renew_every_s * 1.5


MOST_LOOKED_AT = 20_000

_h = holds.c
_now = now_s()
_mine: BindParameter[str] = bindparam("mine")
_given = _h.event_id.in_(bindparam("given", expanding=True))


def _extending(whose: ColumnElement[bool]) -> Update:
    """Those of these leases that are due, or were granted before the clock was set back."""
    due = or_(_h.expires_at < _now + bindparam("due_s"), _h.expires_at > _now + bindparam("ttl_s"))
    free = select(_h.event_id).where(whose, due).with_for_update(skip_locked=True)
    renewed = {"owner": _mine, "expires_at": _now + bindparam("ttl_s")}
    return update(holds).where(_h.event_id.in_(free)).values(renewed)


def _closing(still: ColumnElement[bool]) -> Executable:
    wanted = select(_h.event_id).where(_given, still).with_for_update(skip_locked=True)
    return (
        delete(holds)
        .where(_h.event_id.in_(wanted))
        .returning(_h.workspace_id, _h.amount_nano_usd, _h.key_id, _h.budgets)
    )


# Built once: SQLAlchemy takes ten times as long to build one of these as to run it.
_RENEW = _extending(_h.owner == _mine)
_ADOPT = _extending(_given)
_OWNED = select(_h.event_id).where(_h.owner == _mine)
_CLOSE_OWN = _closing(_h.owner == _mine)
_CLOSE_ENDED = _closing(or_(_h.expires_at <= _now, _h.expires_at > _now + bindparam("absurd_s")))
_FREE = (
    update(workspaces)
    .where(workspaces.c.id == bindparam("workspace"))
    .values(held_nano_usd=workspaces.c.held_nano_usd - bindparam("freed"))
)
_LIMITED = select(workspaces.c.id).where(
    workspaces.c.id.in_(bindparam("given", expanding=True)), workspaces.c.has_limited_keys
)
_asked = api_keys.alias("asked")
# On the row that has the key's balance, where its key has a spend limit.
_FREE_KEY = (
    update(api_keys)
    .where(
        api_keys.c.id
        == select(func.coalesce(_asked.c.budget_key_id, _asked.c.id))
        .where(_asked.c.id == bindparam("key"))
        .scalar_subquery(),
        api_keys.c.month.is_not(None),
    )
    .values(held_nano_usd=api_keys.c.held_nano_usd - bindparam("freed"))
)
_READ_NOW = select(_now)
_NEGLECTED = (
    select(_h.event_id, _h.expires_at)
    .where(
        _h.owner != _mine,
        or_(_h.expires_at < bindparam("soon"), _h.expires_at > bindparam("absurd")),
        or_(_h.owner != "", _h.created_at < bindparam("aged")),
    )
    .order_by(_h.expires_at)
    .limit(MOST_LOOKED_AT)
)


@dataclass(frozen=True, slots=True)
class Neglected:
    """A hold of another server that a living owner would have renewed, with its lease as it was read."""

    event_id: str
    expires_at: float
    has_ended: bool


def renew(connection: Connection, owner: str, times: LeaseTimes) -> None:
    """Renews every lease of this owner that is due, or was granted before the clock was set back."""
    connection.execute(_RENEW, {"mine": owner, "due_s": times.due_s, "ttl_s": times.ttl_s})


def adopt(connection: Connection, owner: str, event_ids: Collection[str], times: LeaseTimes) -> None:
    """Renews the leases of these holds, whose usage waits in this server's spool, whichever server opened them."""
    for some in in_parts(sorted(event_ids)):
        parameters = {"mine": owner, "given": some, "due_s": times.due_s, "ttl_s": times.ttl_s}
        connection.execute(_ADOPT, parameters)


def owned(connection: Connection, owner: str) -> list[str]:
    """Every hold that the ledger has of this owner."""
    return list(connection.execute(_OWNED, {"mine": owner}).scalars())


def neglected(connection: Connection, owner: str, times: LeaseTimes) -> list[Neglected]:
    """Other servers' holds whose leases were not renewed when they should have been, or end absurdly late."""
    now: float = connection.execute(_READ_NOW).scalar_one()
    parameters = {
        "mine": owner,
        "soon": now + times.neglected_s,
        "absurd": now + times.absurd_s,
        "aged": datetime.fromtimestamp(now - times.ownerless_s, UTC),
    }
    rows = connection.execute(_NEGLECTED, parameters).all()
    return [Neglected(row.event_id, row.expires_at, row.expires_at <= now) for row in rows]


def close_ended(connection: Connection, event_ids: Collection[str], times: LeaseTimes) -> int:
    """Closes those of these holds whose lease has ended, or ends absurdly late: neither is true of one just renewed."""
    return _close(connection, _CLOSE_ENDED, event_ids, {"absurd_s": times.absurd_s})


def close_own(connection: Connection, event_ids: Collection[str], owner: str) -> int:
    """Closes those of these holds that are this owner's."""
    return _close(connection, _CLOSE_OWN, event_ids, {"mine": owner})


def _close(
    connection: Connection, closing: Executable, event_ids: Collection[str], parameters: Mapping[str, Any]
) -> int:
    freed: dict[str, int] = defaultdict(int)
    freed_of_keys: dict[tuple[str, str], int] = defaultdict(int)
    freed_of_budgets: dict[str, int] = defaultdict(int)
    count = 0
    for some in in_parts(sorted(event_ids)):
        for row in connection.execute(closing, {**parameters, "given": some}).all():
            freed[row.workspace_id] += row.amount_nano_usd
            if row.key_id is not None:
                freed_of_keys[row.workspace_id, row.key_id] += row.amount_nano_usd
            for counter in budgets.remembered(row.budgets) if row.budgets else ():
                freed_of_budgets[counter] += row.amount_nano_usd
            count += 1
    # Sorted, since two servers that lock the same workspaces in different orders would deadlock.
    for workspace_id in sorted(freed):
        connection.execute(_FREE, {"workspace": workspace_id, "freed": freed[workspace_id]})
    if freed_of_keys:
        limited = set(connection.execute(_LIMITED, {"given": sorted(freed)}).scalars())
        for (workspace_id, key_id), amount in sorted(freed_of_keys.items()):
            if workspace_id in limited:
                connection.execute(_FREE_KEY, {"key": key_id, "freed": amount})
    for counter, amount in sorted(freed_of_budgets.items()):
        budgets.move(connection, [counter], freed=amount, charge=0)
    return count


@dataclass(slots=True)
class _Seen:
    expires_at: float
    since: float
    last: float
    looks: int = 1


class DeadOwners:
    """An expired lease is not enough, since a clock may have jumped: it must also have been found unchanged
    in several looks, a renewal apart by this server's own clock. Its memory is bounded by what one look may return."""

    def __init__(self, times: LeaseTimes) -> None:
        self._times = times
        self._seen: dict[str, _Seen] = {}

    def forget(self) -> None:
        """Start over: the ledger was down, so the owners may not have been able to renew either."""
        self._seen.clear()

    def look(self, found: Iterable[Neglected], *, now: float, spared: Collection[str]) -> list[str]:
        """The holds whose owner is dead. `now` is this server's monotonic clock; `spared` are never among them."""
        before, self._seen = self._seen, {}
        dead = []
        for hold in found:
            seen = self._seen[hold.event_id] = self._seen_again(before.get(hold.event_id), hold, now)
            if hold.event_id not in spared and self._is_dead(seen, hold, now):
                dead.append(hold.event_id)
        return dead

    def _seen_again(self, seen: _Seen | None, hold: Neglected, now: float) -> _Seen:
        times = self._times
        if (
            seen is None
            or seen.expires_at != hold.expires_at
            or now - seen.last > 3 * times.renew_every_s + 1
        ):
            # Renewed; or this server has not looked for a long time, and may itself be the one that was stopped.
            return _Seen(hold.expires_at, now, now)
        if now - seen.last >= 0.9 * times.renew_every_s:
            seen.looks, seen.last = seen.looks + 1, now
        return seen

    def _is_dead(self, seen: _Seen, hold: Neglected, now: float) -> bool:
        if seen.looks < self._times.looks:
            return False
        # After the clock was set back it ends late: then it must have stayed unchanged for a whole lease.
        return hold.has_ended or now - seen.since >= self._times.ttl_s + self._times.renew_every_s


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
        """True where the ledger may have a hold of this server that belongs to no request here."""
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
            await self._database.write(partial(renew, owner=self.owner, times=self.times), durable=False)
            spooled = await self._spool.waiting_ids()
            if spooled:
                await self._database.write(
                    partial(adopt, owner=self.owner, event_ids=spooled, times=self.times)
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
            known = await self._database.read(partial(owned, owner=self.owner))
            # In this order: usage goes into the spool before its request ends here.
            unknown = set(known) - self._running
            if unknown:
                unknown -= await self._spool.waiting_ids()
            if not unknown:
                return 0
            # Holds that were closed meanwhile are gone, and ids are never reused.
            closed = await self._database.write(partial(close_own, event_ids=unknown, owner=self.owner))
        except LedgerUnavailable:
            self._unknown_holds_possible = True
            raise
        # Those that another transaction had locked are looked for again.
        self._unknown_holds_possible = self._unknown_holds_possible or closed < len(unknown)
        if closed:
            log.warning("closed %d holds whose release or whose opening had not been answered", closed)
        return closed

    async def _sweep(self) -> None:
        found = await self._database.read(partial(neglected, owner=self.owner, times=self.times))
        # Read after the leases: what a dead server left in this spool is charged before its hold is closed.
        spared = await self._spool.waiting_ids() if found else frozenset()
        dead = self._dead_owners.look(found, now=asyncio.get_running_loop().time(), spared=spared)
        if not dead:
            return
        closed = await self._database.write(partial(close_ended, event_ids=dead, times=self.times))
        log.warning("closed %d holds of servers that do not renew them", closed)
