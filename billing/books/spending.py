"""What a workspace and a key have spent of their limits at one moment, in all and in the present month."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, func, select

from billing.errors import UnknownAccount
from billing.ledger.workspace_balances import posted_in
from billing.store.database import use_one_snapshot
from billing.store.dates import month_bounds, this_month
from billing.store.schema import api_keys, key_months, workspaces


@dataclass(frozen=True, slots=True)
class SpendLimit:
    """`used` is what was charged less what was credited: below zero, it is paid in advance. None: no limit, or no end.

    What is left of a limit is below zero where it was lowered, or usage under an allowance passed it.
    """

    limit_nano_usd: int | None
    used_nano_usd: int
    held_nano_usd: int
    resets_at: datetime | None = None

    @property
    def remaining_nano_usd(self) -> int | None:
        if self.limit_nano_usd is None:
            return None
        return self.limit_nano_usd - self.used_nano_usd - self.held_nano_usd


@dataclass(frozen=True, slots=True)
class Spending:
    """Of one workspace. `month` is the calendar month (UTC) of the database's clock."""

    billing_enabled: bool
    total: SpendLimit
    month: SpendLimit
    # Of the key and those that it was rotated from; None where it has no such limit. No credit is in them.
    key_total: SpendLimit | None = None
    key_month: SpendLimit | None = None


def spending(connection: Connection, workspace_id: str, key_id: str) -> Spending:
    """Raises `UnknownAccount`."""
    # The row of the workspace and that of the key are of one moment.
    use_one_snapshot(connection)
    statement = select(workspaces, this_month().label("now_month")).where(workspaces.c.id == workspace_id)
    row = connection.execute(statement).one_or_none()
    if row is None:
        raise UnknownAccount("workspace", workspace_id)
    in_month = row.month_posted_nano_usd
    if row.month != row.now_month:
        # The row moves to this month with its next request.
        in_month = posted_in(connection, row.id, row.now_month)
    used = row.posted_nano_usd - row.credited_nano_usd
    _, next_month = month_bounds(row.now_month)
    return Spending(
        row.billing_enabled,
        SpendLimit(row.spend_limit_nano_usd, used, row.held_nano_usd),
        SpendLimit(row.monthly_limit_nano_usd, in_month, row.held_nano_usd, next_month),
        *_of_key(connection, key_id, row.now_month, next_month),
    )


def _of_key(
    connection: Connection, key_id: str, month: str, next_month: datetime
) -> tuple[SpendLimit | None, SpendLimit | None]:
    asked, elsewhere = api_keys.alias("asked"), key_months.c
    limited = select(func.coalesce(asked.c.budget_key_id, asked.c.id)).where(asked.c.id == key_id)
    statement = select(api_keys).where(api_keys.c.id == limited.scalar_subquery())
    row = connection.execute(statement).one_or_none()
    if row is None or row.month is None:
        return None, None
    in_month = row.month_posted_nano_usd
    if row.month != month:
        there = select(elsewhere.posted_nano_usd).where(elsewhere.key_id == row.id, elsewhere.month == month)
        in_month = connection.execute(there).scalar_one_or_none() or 0
    total, monthly = row.spend_limit_nano_usd, row.monthly_limit_nano_usd
    return (
        None if total is None else SpendLimit(total, row.posted_nano_usd, row.held_nano_usd),
        None if monthly is None else SpendLimit(monthly, in_month, row.held_nano_usd, next_month),
    )
