"""Which month a workspace's charges count toward: its row has one month's total, `workspace_months` the others'.

The row moves to the month of the database's clock, whichever way the clock went, and picks up what was charged in that
month before. So a clock that was once a month ahead leaves a total behind in a future month, and no limit is lost.
"""

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
    """The workspace's row, locked and moved to the present month, `now_month`; None if there is no such workspace.

    It stays where it is if the present month was charged before and what is held now would exceed the limit there:
    then held money is charged to the month that had room for it.
    """
    parameters = {"workspace": workspace_id}
    row = connection.execute(_LOCK, parameters).one_or_none()
    if row is None or row.month == row.now_month:
        return row
    kept = posted_in(connection, workspace_id, row.now_month)
    limit = row.monthly_limit_nano_usd
    if kept and limit is not None and kept + row.held_nano_usd > limit:
        return row
    _move_to_present(connection, row, kept)
    return connection.execute(_LOCK, parameters).one()


def posted_in(connection: Connection, workspace_id: str, month: str) -> int:
    """What was charged in a month other than the row's."""
    return int(connection.execute(_KEPT, {"workspace": workspace_id, "in_month": month}).scalar_one())


def _move_to_present(connection: Connection, row: Row[Any], kept: int) -> None:
    left = {"workspace_id": row.id, "month": row.month, "posted_nano_usd": row.month_posted_nano_usd}
    connection.execute(_keeping(connection.dialect.name), left)
    moving = update(workspaces).where(_w.id == row.id)
    connection.execute(moving.values(month=row.now_month, month_posted_nano_usd=kept))


def _keeping(dialect: str) -> Insert:
    inserting: Any = (sqlite if dialect == "sqlite" else postgresql).insert(workspace_months)
    replaced = {"posted_nano_usd": inserting.excluded.posted_nano_usd}
    made: Insert = inserting.on_conflict_do_update(index_elements=["workspace_id", "month"], set_=replaced)
    return made
