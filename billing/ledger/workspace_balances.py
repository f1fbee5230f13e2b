"""Balance of a workspace on its row: the month that its charges count toward, the room of its limits, its refusals.

The row moves to the month of the database's clock, whichever way the clock went, and picks up what was charged in that
month before. So a clock that was once a month ahead leaves a total behind in a future month, and no limit is lost.
"""

from typing import Any

from sqlalchemy import Connection, bindparam, func, select, update
from sqlalchemy.engine import Row

from billing.errors import BillingDisabled, InvalidKey, QuotaExceeded
from billing.ledger import key_balances
from billing.store.dates import this_month
from billing.store.schema import workspace_months, workspaces
from billing.store.statements import replacing
from billing.usage import Hold

_w, _m = workspaces.c, workspace_months.c
# NO KEY UPDATE, as an UPDATE takes it: the stronger lock would wait for every event that is being inserted.
_LOCK = (
    select(workspaces, this_month().label("now_month"))
    .where(_w.id == bindparam("workspace"))
    .with_for_update(key_share=True)
)
_KEPT = select(func.coalesce(func.sum(_m.posted_nano_usd), 0)).where(
    _m.workspace_id == bindparam("workspace"), _m.month == bindparam("in_month")
)


def locked_in_month(connection: Connection, workspace_id: str) -> Row[Any] | None:
    """The workspace's row, locked and moved to the present month, `now_month`; None if there is no such workspace.

    It stays where it is if what is held now would exceed the limit there, its own or a key's, with what that month was
    charged before: then held money is charged to the month that had room for it. A credit may have made that room.
    """
    parameters = {"workspace": workspace_id}
    row = connection.execute(_LOCK, parameters).one_or_none()
    if row is None or row.month == row.now_month:
        return row
    kept = posted_in(connection, workspace_id, row.now_month)
    limit = row.monthly_limit_nano_usd
    if limit is not None and kept + row.held_nano_usd > limit:
        return row
    if row.has_limited_keys and not key_balances.have_room_in(connection, workspace_id, row.now_month):
        return row
    _move_to_present(connection, row, kept)
    return connection.execute(_LOCK, parameters).one()


def posted_in(connection: Connection, workspace_id: str, month: str) -> int:
    """What was charged in a month other than the row's."""
    return int(connection.execute(_KEPT, {"workspace": workspace_id, "in_month": month}).scalar_one())


def _move_to_present(connection: Connection, row: Row[Any], kept: int) -> None:
    left = {"workspace_id": row.id, "month": row.month, "posted_nano_usd": row.month_posted_nano_usd}
    connection.execute(replacing(connection, workspace_months, "posted_nano_usd"), left)
    moving = update(workspaces).where(_w.id == row.id)
    connection.execute(moving.values(month=row.now_month, month_posted_nano_usd=kept))


def room(row: Row[Any], freed: int) -> int:
    """What the limits leave room for, once this request's own hold is gone."""
    held = row.held_nano_usd - freed
    rooms = [
        limit - posted - held
        for limit, posted in (
            (row.spend_limit_nano_usd, row.posted_nano_usd - row.credited_nano_usd),
            (row.monthly_limit_nano_usd, row.month_posted_nano_usd),
        )
        if limit is not None
    ]
    # Without a limit, more than any column holds.
    return max(0, min(rooms, default=2**63))


def refusal(connection: Connection, row: Row[Any] | None, hold: Hold) -> Exception:
    if row is None or row.revoked_at is not None:
        return InvalidKey("workspace revoked")
    if not row.billing_enabled:
        return BillingDisabled()
    wanted = hold.amount_nano_usd
    committed = row.posted_nano_usd - row.credited_nano_usd + row.held_nano_usd
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
