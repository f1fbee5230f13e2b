"""The SQL of money, one function per transaction: open a hold, post a usage event, close a hold.

Rows are locked in one order, hold before workspace, and each statement that moves money names the row's
own figures, so no interleaving of callers can lose or double an amount. No statement here lets what is posted and
held exceed a limit (docs/adr/0010-posted-within-the-limit.md).
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Insert,
    bindparam,
    delete,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Row

from billing.errors import BillingDisabled, InvalidKey, QuotaExceeded, RowRefused
from billing.ledger.monthly_totals import locked_in_month, posted_in
from billing.store.database_clock import now_s, this_month
from billing.store.precompiled_sql import PrecompiledStatement
from billing.store.schema import holds, usage_events, workspaces
from billing.usage import Hold, UsageEvent

_w = workspaces.c
_committed = _w.posted_nano_usd + _w.held_nano_usd
_month_committed = _w.month_posted_nano_usd + _w.held_nano_usd
_amount: ColumnElement[int] = bindparam("amount", type_=BigInteger)
_freed: ColumnElement[int] = bindparam("freed", type_=BigInteger)
_charged: ColumnElement[int] = bindparam("charge", type_=BigInteger)

_RESERVE = PrecompiledStatement(
    update(workspaces)
    .where(
        _w.id == bindparam("workspace"),
        _w.revoked_at.is_(None),
        _w.billing_enabled,
        or_(_w.spend_limit_nano_usd.is_(None), _committed + _amount <= _w.spend_limit_nano_usd),
        or_(
            _w.monthly_limit_nano_usd.is_(None),
            # If the row is in another month, `locked_in_month` moves it first.
            _month_committed + _amount <= _w.monthly_limit_nano_usd,
        ),
        _w.month == this_month(),
    )
    .values(held_nano_usd=_w.held_nano_usd + _amount)
)
_MOVE = {
    "held_nano_usd": _w.held_nano_usd - _freed,
    "posted_nano_usd": _w.posted_nano_usd + _charged,
    "month_posted_nano_usd": _w.month_posted_nano_usd + _charged,
}
# For a charge that its own hold covers, or the allowance: what is posted and held does not grow.
_CHARGE = PrecompiledStatement(
    update(workspaces)
    .where(_w.id == bindparam("workspace"), _w.month == this_month())
    .values(_MOVE)
    .returning(_w.month)
)
# For every other: never past a limit, except for what its hold covers.
_CHARGE_WITHIN = (
    update(workspaces)
    .where(
        _w.id == bindparam("workspace"),
        or_(
            _charged <= bindparam("covered", type_=BigInteger),
            or_(_w.spend_limit_nano_usd.is_(None), _committed - _freed + _charged <= _w.spend_limit_nano_usd)
            & or_(
                _w.monthly_limit_nano_usd.is_(None),
                _month_committed - _freed + _charged <= _w.monthly_limit_nano_usd,
            ),
        ),
    )
    .values(_MOVE)
)
_UNCHARGE = (
    update(workspaces)
    .where(_w.id == bindparam("workspace"))
    .values(
        posted_nano_usd=_w.posted_nano_usd - _charged,
        month_posted_nano_usd=_w.month_posted_nano_usd - _charged,
    )
)
_FREE = PrecompiledStatement(
    update(workspaces).where(_w.id == bindparam("workspace")).values(held_nano_usd=_w.held_nano_usd - _freed)
)
_CLOSE = PrecompiledStatement(
    delete(holds)
    .where(holds.c.event_id == bindparam("event"))
    .returning(holds.c.workspace_id, holds.c.amount_nano_usd)
)
_WHY_NOT = select(workspaces, this_month().label("now_month")).where(_w.id == bindparam("workspace"))
_HOLD = PrecompiledStatement(
    insert(holds).values(
        event_id=bindparam("event_id"),
        workspace_id=bindparam("workspace_id"),
        amount_nano_usd=bindparam("amount_nano_usd"),
        created_at=bindparam("created_at"),
        owner=bindparam("owner"),
        expires_at=now_s() + bindparam("lease_s"),
    )
)


def _ignoring_known_events(dialect: str) -> Insert:
    make = sqlite.insert if dialect == "sqlite" else postgresql.insert
    return make(usage_events).on_conflict_do_nothing(index_elements=["event_id"])


_EVENT_COLUMNS = [column.name for column in usage_events.columns]
_RECORD = {
    dialect: PrecompiledStatement(_ignoring_known_events(dialect)) for dialect in ("sqlite", "postgresql")
}


@dataclass(frozen=True, slots=True)
class Posting:
    """What became of an event: one that was there already (`is_new` is false) changed nothing."""

    is_new: bool
    written_off_nano_usd: int = 0


def open_hold(connection: Connection, hold: Hold, *, owner: str, lease_s: float) -> None:
    """Reserves the amount. Raises `QuotaExceeded`, `BillingDisabled` or `InvalidKey` (workspace revoked)."""
    parameters = {"workspace": hold.workspace_id, "amount": hold.amount_nano_usd}
    if _RESERVE.count(connection, parameters) != 1:
        _reserve_in_another_month(connection, hold, parameters)
    _HOLD.count(
        connection,
        {
            "event_id": hold.event_id,
            "workspace_id": hold.workspace_id,
            "amount_nano_usd": hold.amount_nano_usd,
            "created_at": hold.created_at,
            "owner": owner,
            "lease_s": lease_s,
        },
    )


def post(connection: Connection, event: UsageEvent) -> Posting:
    """Records the event, charges the workspace and closes the hold.

    A charge within its hold is posted in full, and so is usage that was taken under the allowance. What exceeds the
    hold, and all of it where the hold is gone, is posted as far as the limits have room; the rest is written off.
    """
    freed = sum(amount for _, amount in _CLOSE.returned(connection, {"event": event.event_id}))
    charge, month = _charge(connection, event, freed)
    values = {name: getattr(event, name) for name in _EVENT_COLUMNS}
    written_off = event.cost_nano_usd - charge
    values |= {"written_off_nano_usd": written_off, "month": month}
    if _RECORD[connection.dialect.name].count(connection, values) == 1:
        return Posting(True, written_off)
    # The event was there already: only its hold is given back.
    connection.execute(_UNCHARGE, {"workspace": event.workspace_id, "charge": charge})
    return Posting(False)


def close_hold(connection: Connection, event_id: str) -> bool:
    """Gives the amount back; false when the hold was closed already."""
    closed = _CLOSE.returned(connection, {"event": event_id})
    for workspace_id, amount_nano_usd in closed:
        _FREE.count(connection, {"workspace": workspace_id, "freed": amount_nano_usd})
    return bool(closed)


def _charge(connection: Connection, event: UsageEvent, freed: int) -> tuple[int, str]:
    """Moves what may be charged from held to posted; returns it, and the month that it counts to."""
    if event.offline or event.cost_nano_usd <= freed:
        parameters = {"workspace": event.workspace_id, "freed": freed, "charge": event.cost_nano_usd}
        if charged := _CHARGE.returned(connection, parameters):
            return event.cost_nano_usd, charged[0][0]
    return _charge_locked(connection, event, freed)


def _charge_locked(connection: Connection, event: UsageEvent, freed: int) -> tuple[int, str]:
    row = locked_in_month(connection, event.workspace_id)
    if row is None:
        raise RowRefused(f"no workspace {event.workspace_id} to charge")
    covered = event.cost_nano_usd if event.offline else freed
    charge = min(event.cost_nano_usd, max(covered, _room(row, freed)))
    parameters = {"workspace": row.id, "freed": freed, "charge": charge, "covered": covered}
    if connection.execute(_CHARGE_WITHIN, parameters).rowcount != 1:
        raise RowRefused(f"workspace {row.id} has no room for a charge that was found to fit")
    return charge, row.month


def _room(row: Row[Any], freed: int) -> int:
    """What the limits leave room for, once this request's own hold is gone."""
    held = row.held_nano_usd - freed
    rooms = [
        limit - posted - held
        for limit, posted in (
            (row.spend_limit_nano_usd, row.posted_nano_usd),
            (row.monthly_limit_nano_usd, row.month_posted_nano_usd),
        )
        if limit is not None
    ]
    # Without a limit, more than any column holds.
    return max(0, min(rooms, default=2**63))


def _reserve_in_another_month(connection: Connection, hold: Hold, parameters: dict[str, Any]) -> None:
    """After a refusal: tries again if only the month had changed, and else raises the reason."""
    row = connection.execute(_WHY_NOT, {"workspace": hold.workspace_id}).one_or_none()
    if row is not None and row.month != row.now_month:
        row = locked_in_month(connection, hold.workspace_id)
        if _RESERVE.count(connection, parameters) == 1:
            return
    raise _refusal(connection, row, hold)


def _refusal(connection: Connection, row: Row[Any] | None, hold: Hold) -> Exception:
    if row is None or row.revoked_at is not None:
        return InvalidKey("workspace revoked")
    if not row.billing_enabled:
        return BillingDisabled()
    wanted, committed = hold.amount_nano_usd, row.posted_nano_usd + row.held_nano_usd
    total, in_month = row.spend_limit_nano_usd, row.monthly_limit_nano_usd
    # The row may have changed between the two statements: the limit closest to being used up is named.
    if total is not None and (in_month is None or committed + wanted > total):
        return QuotaExceeded(
            span="total", limit_nano_usd=total, committed_nano_usd=committed, wanted_nano_usd=wanted
        )
    posted = row.month_posted_nano_usd
    if row.month != row.now_month:
        posted = posted_in(connection, row.id, row.now_month)
    return QuotaExceeded(
        span="month",
        limit_nano_usd=in_month or 0,
        committed_nano_usd=posted + row.held_nano_usd,
        wanted_nano_usd=wanted,
    )
