"""The SQL of money, one function per transaction: open a hold, post a usage event, close a hold.

Rows are locked in one order, hold before workspace before key before budgets, and each statement that moves money names
the row's own figures, so no interleaving of callers can lose or double an amount. No statement here lets what is posted
and held exceed a limit (docs/adr/0010-posted-within-the-limit.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    String,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from billing.errors import ClockBehind, RowRefused
from billing.ledger import adjustment_rows, balances, budgets
from billing.ledger.balances import locked_in_month
from billing.ledger.budgets import Spender
from billing.price import dearer_nano_usd
from billing.rollups.archived import archived_bound, sealed_until
from billing.store.dates import now_s, this_month
from billing.store.schema import holds, usage_events, workspaces
from billing.store.statements import DIALECTS, PrecompiledStatement, inserting
from billing.usage import Hold, UsageEvent

_w = workspaces.c
_committed = _w.posted_nano_usd - _w.credited_nano_usd + _w.held_nano_usd
_month_committed = _w.month_posted_nano_usd + _w.held_nano_usd
_amount: ColumnElement[int] = bindparam("amount", type_=BigInteger)
_freed: ColumnElement[int] = bindparam("freed", type_=BigInteger)
_charged: ColumnElement[int] = bindparam("charge", type_=BigInteger)

# What the statements that move money return: the month, and where else the money is to be moved.
_LOOKED_FOR = (_w.month, _w.has_limited_keys, _w.has_budgets)
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
        bindparam("event_id", type_=String) >= func.coalesce(archived_bound(), ""),
    )
    .values(held_nano_usd=_w.held_nano_usd + _amount)
    .returning(*_LOOKED_FOR)
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
    .returning(*_LOOKED_FOR)
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
    update(workspaces)
    .where(_w.id == bindparam("workspace"))
    .values(held_nano_usd=_w.held_nano_usd - _freed)
    .returning(_w.has_limited_keys)
)
_CLOSE = PrecompiledStatement(
    delete(holds)
    .where(holds.c.event_id == bindparam("event"))
    .returning(holds.c.workspace_id, holds.c.amount_nano_usd, holds.c.key_id, holds.c.budgets)
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
        key_id=bindparam("key_id"),
        budgets=bindparam("budgets"),
    )
)


_EVENT_COLUMNS = [column.name for column in usage_events.columns]
# An event that is there already is left as it is.
_RECORD = {
    dialect: PrecompiledStatement(
        inserting(dialect, usage_events).on_conflict_do_nothing(index_elements=["event_id"])
    )
    for dialect in DIALECTS
}


def event_values(event: UsageEvent) -> dict[str, Any]:
    """Its row before it is posted, by column."""
    return {name: getattr(event, name) for name in _EVENT_COLUMNS}


@dataclass(frozen=True, slots=True)
class Posting:
    """What became of an event: one that was there already (`is_new` is false) changed nothing."""

    is_new: bool
    written_off_nano_usd: int = 0
    # The month that it counts to.
    month: str = ""


@dataclass(frozen=True, slots=True)
class _Freed:
    """What a hold that is closed had set aside: of its workspace, and of its key. Holds of older releases name none.
    `counters`: the periods of budgets that it was counted in; None where it is gone."""

    nano_usd: int = 0
    of_key_nano_usd: int = 0
    counters: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class _Charge:
    nano_usd: int
    # The month that it counts to.
    month: str
    has_limited_keys: bool
    # The periods of budgets that it counts in.
    counters: Sequence[str]


def open_hold(connection: Connection, hold: Hold, *, owner: str, lease_s: float) -> None:
    """Reserves the amount. Raises `QuotaExceeded`, `BillingDisabled`, `InvalidKey` (workspace revoked) or `ClockBehind`
    (the database would refuse the event)."""
    parameters = {
        "workspace": hold.workspace_id,
        "amount": hold.amount_nano_usd,
        "event_id": hold.event_id,
    }
    reserved = _RESERVE.returned(connection, parameters)
    month, has_limited_keys, has_budgets = (
        reserved or _reserved_in_another_month(connection, hold, parameters)
    )[0]
    if has_limited_keys:
        balances.reserve(connection, hold.key_id, hold.amount_nano_usd, month)
    counted = None
    if has_budgets:
        spender = replace(_spender(hold), may_land=hold.may_land)
        counted = budgets.reserve(connection, spender, hold.amount_nano_usd, hold.event_id)
    _HOLD.count(
        connection,
        {
            "event_id": hold.event_id,
            "workspace_id": hold.workspace_id,
            "amount_nano_usd": hold.amount_nano_usd,
            "created_at": hold.created_at,
            "owner": owner,
            "lease_s": lease_s,
            "key_id": hold.key_id,
            "budgets": counted,
        },
    )


def post(connection: Connection, event: UsageEvent) -> Posting:
    """Records the event, charges the workspace and closes the hold.

    A charge within its hold is posted in full, and so is usage that was taken under the allowance. What exceeds the
    hold, and all of it where the hold is gone, is posted as far as the limits have room; the rest is written off.
    """
    return _post(connection, event, _closed(connection, event))


def post_all(connection: Connection, events: Sequence[UsageEvent]) -> list[Posting]:
    """`post` of each: in one transaction they are all there or none is. What a chat is dearer for its compression is
    credited in the same."""
    # All holds before the workspace: a sweep that has the second one waits for the workspace.
    freed = [_closed(connection, event) for event in events]
    posted = [_post(connection, event, amount) for event, amount in zip(events, freed, strict=True)]
    written_off = sum(one.written_off_nano_usd for one in posted)
    for event, one in zip(events, posted, strict=True):
        if one.is_new and event.compression is not None:
            _credit_dearer(connection, event, one, written_off)
    return posted


def _credit_dearer(connection: Connection, event: UsageEvent, posting: Posting, written_off: int) -> None:
    dearer = dearer_nano_usd(
        saved_nano_usd=event.saved_nano_usd,
        compression_nano_usd=event.compression_nano_usd,
        written_off_nano_usd=written_off,
        charged_nano_usd=event.cost_nano_usd - posting.written_off_nano_usd,
    )
    if dearer:
        adjustment_rows.credit_dearer(connection, event, dearer, posting.month)


def _closed(connection: Connection, event: UsageEvent) -> _Freed:
    """What its hold had set aside; the hold is gone then."""
    for _, amount, key_id, counted in _CLOSE.returned(connection, {"event": event.event_id}):
        counters = budgets.remembered(counted) if counted else ()
        return _Freed(amount, amount if key_id is not None else 0, counters)
    return _Freed()


def _post(connection: Connection, event: UsageEvent, freed: _Freed) -> Posting:
    charge = _charge(connection, event, freed)
    if charge.has_limited_keys:
        balances.move(
            connection,
            event.key_id,
            freed=freed.of_key_nano_usd,
            charge=charge.nano_usd,
            month=charge.month,
        )
    if charge.counters:
        of_budgets = freed.nano_usd if freed.counters else 0
        budgets.move(connection, charge.counters, freed=of_budgets, charge=charge.nano_usd)
    written_off = event.cost_nano_usd - charge.nano_usd
    values = event_values(event) | {
        "written_off_nano_usd": written_off,
        "month": charge.month,
        "budgets": budgets.stored(charge.counters) if charge.counters else None,
    }
    if _RECORD[connection.dialect.name].count(connection, values) == 1:
        return Posting(True, written_off, charge.month)
    # The event was there already: only its hold is given back.
    connection.execute(_UNCHARGE, {"workspace": event.workspace_id, "charge": charge.nano_usd})
    if charge.has_limited_keys:
        balances.move(connection, event.key_id, freed=0, charge=-charge.nano_usd, month=charge.month)
    if charge.counters:
        budgets.move(connection, charge.counters, freed=0, charge=-charge.nano_usd)
    return Posting(False)


def close_hold(connection: Connection, event_id: str) -> bool:
    """Gives the amount back; false when the hold was closed already."""
    closed = _CLOSE.returned(connection, {"event": event_id})
    for workspace_id, amount_nano_usd, key_id, counted in closed:
        found = _FREE.returned(connection, {"workspace": workspace_id, "freed": amount_nano_usd})
        if found and found[0][0] and key_id is not None:
            balances.free(connection, key_id, amount_nano_usd)
        if counted:
            budgets.move(connection, budgets.remembered(counted), freed=amount_nano_usd, charge=0)
    return bool(closed)


def _charge(connection: Connection, event: UsageEvent, freed: _Freed) -> _Charge:
    """Moves what may be charged from held to posted, on the workspace's row."""
    if event.offline or event.cost_nano_usd <= freed.nano_usd:
        parameters = {
            "workspace": event.workspace_id,
            "freed": freed.nano_usd,
            "charge": event.cost_nano_usd,
        }
        if charged := _CHARGE.returned(connection, parameters):
            month, has_limited_keys, has_budgets = charged[0]
            counters = _counters(connection, event, freed, has_budgets)
            return _Charge(event.cost_nano_usd, month, has_limited_keys, counters)
    return _charge_locked(connection, event, freed)


def _charge_locked(connection: Connection, event: UsageEvent, freed: _Freed) -> _Charge:
    row = locked_in_month(connection, event.workspace_id)
    if row is None:
        raise RowRefused(f"no workspace {event.workspace_id} to charge")
    covered = event.cost_nano_usd if event.offline else freed.nano_usd
    room = balances.room(row, freed.nano_usd)
    if row.has_limited_keys:
        of_key = balances.key_room(connection, event.key_id, freed.of_key_nano_usd, row.month)
        room = min(room, of_key)
    counters = _counters(connection, event, freed, row.has_budgets)
    if counters:
        of_budgets = budgets.room(connection, counters, freed.nano_usd if freed.counters else 0)
        room = min(room, of_budgets)
    charge = min(event.cost_nano_usd, max(covered, room))
    parameters = {"workspace": row.id, "freed": freed.nano_usd, "charge": charge, "covered": covered}
    if connection.execute(_CHARGE_WITHIN, parameters).rowcount != 1:
        raise RowRefused(f"workspace {row.id} has no room for a charge that was found to fit")
    return _Charge(charge, row.month, row.has_limited_keys, counters)


def _counters(connection: Connection, event: UsageEvent, freed: _Freed, has_budgets: bool) -> Sequence[str]:
    """The periods of budgets that a charge counts in: those of its hold or, where that is gone, the present ones."""
    if freed.counters is not None:
        return freed.counters
    return budgets.present(connection, _spender(event), event.event_id) if has_budgets else ()


def _spender(of: Hold | UsageEvent) -> Spender:
    return Spender(of.workspace_id, of.project_id, of.key_id, of.person, of.tags)


def _reserved_in_another_month(
    connection: Connection, hold: Hold, parameters: dict[str, Any]
) -> Sequence[Sequence[Any]]:
    """After a refusal: what `_RESERVE` returns if only the month had changed. Otherwise raises the reason."""
    if hold.event_id < sealed_until(connection):
        raise ClockBehind(hold.event_id)
    row = connection.execute(_WHY_NOT, {"workspace": hold.workspace_id}).one_or_none()
    if row is not None and row.month != row.now_month:
        row = locked_in_month(connection, hold.workspace_id)
        if reserved := _RESERVE.returned(connection, parameters):
            return reserved
    raise balances.refusal(connection, row, hold)
