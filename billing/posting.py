"""The SQL of money, one function per transaction: open a hold, post a usage event, close holds.

Rows are locked in one order, hold before workspace, and each statement that moves money names the row's
own figures, so no interleaving of callers can lose or double an amount.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime

from sqlalchemy import Connection, Insert, bindparam, case, delete, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Row

from billing.errors import BillingDisabled, InvalidKey, QuotaExceeded, RowRefused
from billing.hot_sql import HotStatement
from billing.schema import holds, usage_events, workspaces
from billing.usage import Hold, UsageEvent, month_of

_w = workspaces.c
# A month later than the row's begins at zero. An earlier one, from a slow clock, counts as the row's.
_month_spent = case((_w.month < bindparam("now_month"), 0), else_=_w.month_posted_nano_usd)
_committed = _w.posted_nano_usd + _w.held_nano_usd
_month_committed = _month_spent + _w.held_nano_usd

_RESERVE = HotStatement(
    update(workspaces)
    .where(
        _w.id == bindparam("workspace"),
        _w.revoked_at.is_(None),
        _w.billing_enabled,
        or_(
            _w.spend_limit_nano_usd.is_(None),
            _committed + bindparam("amount") <= _w.spend_limit_nano_usd,
        ),
        or_(
            _w.monthly_limit_nano_usd.is_(None),
            _month_committed + bindparam("amount") <= _w.monthly_limit_nano_usd,
        ),
    )
    .values(held_nano_usd=_w.held_nano_usd + bindparam("amount"))
)
_CHARGE = HotStatement(
    update(workspaces)
    .where(_w.id == bindparam("workspace"))
    .values(
        held_nano_usd=_w.held_nano_usd - bindparam("freed"),
        posted_nano_usd=_w.posted_nano_usd + bindparam("charge"),
        month_posted_nano_usd=case(
            (_w.month == bindparam("now_month"), _w.month_posted_nano_usd + bindparam("charge")),
            (_w.month < bindparam("now_month"), bindparam("charge")),
            else_=_w.month_posted_nano_usd,
        ),
        month=case((_w.month < bindparam("now_month"), bindparam("now_month")), else_=_w.month),
    )
)
_FREE = HotStatement(
    update(workspaces)
    .where(_w.id == bindparam("workspace"))
    .values(held_nano_usd=_w.held_nano_usd - bindparam("freed"))
)
_CLOSE = HotStatement(
    delete(holds)
    .where(holds.c.event_id == bindparam("event"))
    .returning(holds.c.workspace_id, holds.c.amount_nano_usd)
)
# Two sweepers skip each other's rows, where they would deadlock. SQLite has one writer, and ignores the clause.
_EXPIRED = (
    select(holds.c.event_id).where(holds.c.created_at < bindparam("cutoff")).with_for_update(skip_locked=True)
)
_EXPIRE = (
    delete(holds)
    .where(holds.c.event_id.in_(_EXPIRED))
    .returning(holds.c.workspace_id, holds.c.amount_nano_usd)
)
_WHY_NOT = select(workspaces, _month_committed.label("month_committed")).where(
    _w.id == bindparam("workspace")
)


def _ignoring_known_events(dialect: str) -> Insert:
    make = sqlite.insert if dialect == "sqlite" else postgresql.insert
    return make(usage_events).on_conflict_do_nothing(index_elements=["event_id"])


_HOLD = HotStatement(insert(holds))
_EVENT_COLUMNS = [column.name for column in usage_events.columns]
_RECORD = {dialect: HotStatement(_ignoring_known_events(dialect)) for dialect in ("sqlite", "postgresql")}


def open_hold(connection: Connection, hold: Hold) -> None:
    """Reserves the amount. Raises `QuotaExceeded`, `BillingDisabled` or `InvalidKey` (workspace revoked)."""
    parameters = {
        "workspace": hold.workspace_id,
        "amount": hold.amount_nano_usd,
        "now_month": month_of(hold.created_at),
    }
    if _RESERVE.count(connection, parameters) != 1:
        raise _refusal(connection, hold)
    _HOLD.count(
        connection,
        {
            "event_id": hold.event_id,
            "workspace_id": hold.workspace_id,
            "amount_nano_usd": hold.amount_nano_usd,
            "created_at": hold.created_at,
        },
    )


def post(connection: Connection, event: UsageEvent) -> bool:
    """Records the event, charges the workspace and closes the hold; false when the event was there already.

    A hold that the sweeper closed meanwhile changes nothing: what was generated is charged all the same.
    """
    values = {name: getattr(event, name) for name in _EVENT_COLUMNS}
    if _RECORD[connection.dialect.name].count(connection, values) != 1:
        return False
    freed = sum(amount for _, amount in _CLOSE.returned(connection, {"event": event.event_id}))
    charged = _CHARGE.count(
        connection,
        {
            "workspace": event.workspace_id,
            "freed": freed,
            "charge": event.cost_nano_usd,
            "now_month": month_of(event.settled_at),
        },
    )
    if charged != 1:
        raise RowRefused(f"no workspace {event.workspace_id} to charge")
    return True


def close_hold(connection: Connection, event_id: str) -> bool:
    """Gives the amount back; false when the hold was closed already."""
    closed = _CLOSE.returned(connection, {"event": event_id})
    for workspace_id, amount_nano_usd in closed:
        _FREE.count(connection, {"workspace": workspace_id, "freed": amount_nano_usd})
    return bool(closed)


def expire_holds(connection: Connection, cutoff: datetime) -> int:
    """Closes every hold older than `cutoff` and returns how many there were."""
    closed = connection.execute(_EXPIRE, {"cutoff": cutoff}).all()
    freed: dict[str, int] = defaultdict(int)
    for row in closed:
        freed[row.workspace_id] += row.amount_nano_usd
    # Sorted, since two sweepers that lock the same workspaces in different orders would deadlock.
    for workspace_id in sorted(freed):
        _FREE.count(connection, {"workspace": workspace_id, "freed": freed[workspace_id]})
    return len(closed)


def _refusal(connection: Connection, hold: Hold) -> Exception:
    parameters = {"workspace": hold.workspace_id, "now_month": month_of(hold.created_at)}
    row = connection.execute(_WHY_NOT, parameters).one_or_none()
    if row is None or row.revoked_at is not None:
        return InvalidKey("workspace revoked")
    if not row.billing_enabled:
        return BillingDisabled()
    return _quota_refusal(row, hold.amount_nano_usd)


def _quota_refusal(row: Row[tuple[object, ...]], wanted: int) -> QuotaExceeded:
    committed = row.posted_nano_usd + row.held_nano_usd
    total = row.spend_limit_nano_usd
    # The row may have changed between the two statements: the limit nearest to its end is named.
    if total is not None and (row.monthly_limit_nano_usd is None or committed + wanted > total):
        return QuotaExceeded(
            span="total", limit_nano_usd=total, committed_nano_usd=committed, wanted_nano_usd=wanted
        )
    return QuotaExceeded(
        span="month",
        limit_nano_usd=row.monthly_limit_nano_usd or 0,
        committed_nano_usd=row.month_committed,
        wanted_nano_usd=wanted,
    )
