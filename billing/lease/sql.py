"""The SQL of leases. The database's clock gives and ends them; `pith_now()` is its name for it.

Holds that another transaction has locked are skipped, since it closes them: two that wait for each other's rows
would deadlock. SQLite has one writer, and ignores the clause.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import ColumnElement, Connection, and_, delete, or_, select, update

from billing.database_clock import now_s
from billing.lease.times import LeaseTimes
from billing.schema import holds, workspaces

AT_ONCE = 500
MOST_LOOKED_AT = 20_000

_h = holds.c


@dataclass(frozen=True, slots=True)
class Neglected:
    """A hold of another server that a living owner would have renewed, with its lease as it was read."""

    event_id: str
    expires_at: float
    has_ended: bool


def renew(connection: Connection, owner: str, times: LeaseTimes) -> None:
    """Every lease of this owner that is due; those of a clock that was set back as well."""
    _extend(connection, _h.owner == owner, owner, times)


def adopt(connection: Connection, owner: str, event_ids: Collection[str], times: LeaseTimes) -> None:
    """Renews the leases of these holds, whose usage waits in this server's spool, whoever opened them."""
    for some in _in_parts(event_ids):
        _extend(connection, _h.event_id.in_(some), owner, times)


def owned(connection: Connection, owner: str) -> list[str]:
    """Every hold that the ledger has of this owner."""
    return list(connection.execute(select(_h.event_id).where(_h.owner == owner)).scalars())


def neglected(connection: Connection, owner: str, times: LeaseTimes) -> list[Neglected]:
    """Other servers' holds whose leases were not renewed when they should have been, or end absurdly late."""
    now: float = connection.execute(select(now_s())).scalar_one()
    overdue = or_(_h.expires_at < now + times.neglected_s, _h.expires_at > now + times.absurd_s)
    aged = or_(_h.owner != "", _h.created_at < datetime.fromtimestamp(now - times.ownerless_s, UTC))
    statement = select(_h.event_id, _h.expires_at).where(_h.owner != owner, overdue, aged)
    rows = connection.execute(statement.order_by(_h.expires_at).limit(MOST_LOOKED_AT)).all()
    return [Neglected(row.event_id, row.expires_at, row.expires_at <= now) for row in rows]


def close_ended(connection: Connection, event_ids: Collection[str], times: LeaseTimes) -> int:
    """Closes those of these holds whose lease has ended, or ends absurdly late: one renewed meanwhile is neither."""
    now = now_s()
    return _close(connection, event_ids, or_(_h.expires_at <= now, _h.expires_at > now + times.absurd_s))


def close_own(connection: Connection, event_ids: Collection[str], owner: str) -> int:
    """Closes those of these holds that are this owner's."""
    return _close(connection, event_ids, _h.owner == owner)


def _extend(connection: Connection, whose: ColumnElement[bool], owner: str, times: LeaseTimes) -> None:
    now = now_s()
    due = or_(_h.expires_at < now + times.due_s, _h.expires_at > now + times.ttl_s)
    free = select(_h.event_id).where(whose, due).with_for_update(skip_locked=True)
    connection.execute(
        update(holds).where(_h.event_id.in_(free)).values(owner=owner, expires_at=now + times.ttl_s)
    )


def _close(connection: Connection, event_ids: Collection[str], still: ColumnElement[bool]) -> int:
    freed: dict[str, int] = defaultdict(int)
    count = 0
    for some in _in_parts(event_ids):
        wanted = (
            select(_h.event_id).where(and_(_h.event_id.in_(some), still)).with_for_update(skip_locked=True)
        )
        closing = delete(holds).where(_h.event_id.in_(wanted)).returning(_h.workspace_id, _h.amount_nano_usd)
        for row in connection.execute(closing).all():
            freed[row.workspace_id] += row.amount_nano_usd
            count += 1
    # Sorted, since two sweepers that lock the same workspaces in different orders would deadlock.
    for workspace_id in sorted(freed):
        connection.execute(
            update(workspaces)
            .where(workspaces.c.id == workspace_id)
            .values(held_nano_usd=workspaces.c.held_nano_usd - freed[workspace_id])
        )
    return count


def _in_parts(event_ids: Collection[str]) -> Iterator[Sequence[str]]:
    ordered = sorted(event_ids)
    return (ordered[start : start + AT_ONCE] for start in range(0, len(ordered), AT_ONCE))
