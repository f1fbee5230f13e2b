"""Which month a workspace's charges count to: its row has the sum of one month, and `workspace_months` has the others'.

The row turns to the month that the database's clock says, whichever way the clock went, and finds what was charged
there before. So a clock that was a month ahead, once, leaves a sum behind in a month that has not come, and no limit
is forgotten.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Insert, bindparam, func, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Row

from billing.store.database_clock import this_month
from billing.store.schema import workspace_months, workspaces

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
    """The workspace's row, locked, with its month turned to the one that it is, as `now_month` says.

    It stays where it is when the month was charged before and what is held now would pass its limit there: then the
    held money is charged where it was found free. None where there is no such workspace.
    """
    parameters = {"workspace": workspace_id}
    row = connection.execute(_LOCK, parameters).one_or_none()
    if row is None or row.month == row.now_month:
        return row
    kept = posted_in(connection, workspace_id, row.now_month)
    limit = row.monthly_limit_nano_usd
    if kept and limit is not None and kept + row.held_nano_usd > limit:
        return row
    _turn(connection, row, kept)
    return connection.execute(_LOCK, parameters).one()


def posted_in(connection: Connection, workspace_id: str, month: str) -> int:
    """What was charged in a month that the row does not count now."""
    return int(connection.execute(_KEPT, {"workspace": workspace_id, "in_month": month}).scalar_one())


def _turn(connection: Connection, row: Row[Any], kept: int) -> None:
    left = {"workspace_id": row.id, "month": row.month, "posted_nano_usd": row.month_posted_nano_usd}
    connection.execute(_keeping(connection.dialect.name), left)
    turning = update(workspaces).where(_w.id == row.id)
    connection.execute(turning.values(month=row.now_month, month_posted_nano_usd=kept))


def _keeping(dialect: str) -> Insert:
    inserting: Any = (sqlite if dialect == "sqlite" else postgresql).insert(workspace_months)
    replaced = {"posted_nano_usd": inserting.excluded.posted_nano_usd}
    made: Insert = inserting.on_conflict_do_update(index_elements=["workspace_id", "month"], set_=replaced)
    return made
