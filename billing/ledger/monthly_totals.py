"""Which month a workspace's charges count toward: its row has one month's total, `workspace_months` the others'.

The row moves to the month of the database's clock, whichever way the clock went, and picks up what was charged in that
month before. So a clock that was once a month ahead leaves a total behind in a future month, and no limit is lost.
"""

from typing import Any

from sqlalchemy import Connection, bindparam, func, select, update
from sqlalchemy.engine import Row

from billing.ledger import key_balances
from billing.store.database_clock import this_month
from billing.store.schema import workspace_months, workspaces
from billing.store.upsert import replacing

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
