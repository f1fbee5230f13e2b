"""The SQL of leases, which begin and end by the database's clock (`pith_now()`).

Holds that another transaction has locked are skipped, since it closes them: two that wait for each other's rows
would deadlock. SQLite has one writer, and ignores the clause.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
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

from billing.leases.lease_times import LeaseTimes
from billing.store.database_clock import now_s
from billing.store.schema import api_keys, holds, workspaces

AT_ONCE = 500
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
        delete(holds).where(_h.event_id.in_(wanted)).returning(_h.workspace_id, _h.amount_nano_usd, _h.key_id)
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
    for some in _in_parts(event_ids):
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
    count = 0
    for some in _in_parts(event_ids):
        for row in connection.execute(closing, {**parameters, "given": some}).all():
            freed[row.workspace_id] += row.amount_nano_usd
            if row.key_id is not None:
                freed_of_keys[row.workspace_id, row.key_id] += row.amount_nano_usd
            count += 1
    # Sorted, since two servers that lock the same workspaces in different orders would deadlock.
    for workspace_id in sorted(freed):
        connection.execute(_FREE, {"workspace": workspace_id, "freed": freed[workspace_id]})
    if freed_of_keys:
        limited = set(connection.execute(_LIMITED, {"given": sorted(freed)}).scalars())
        for (workspace_id, key_id), amount in sorted(freed_of_keys.items()):
            if workspace_id in limited:
                connection.execute(_FREE_KEY, {"key": key_id, "freed": amount})
    return count


def _in_parts(event_ids: Collection[str]) -> Iterator[Sequence[str]]:
    ordered = sorted(event_ids)
    return (ordered[start : start + AT_ONCE] for start in range(0, len(ordered), AT_ONCE))
