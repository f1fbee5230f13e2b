"""The ledger in a few numbers, for metrics: batches and their lines, workspaces near a limit, and who used how much."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, case, func, or_, select

from billing.books.usage_report import UsageSum, total, usage
from billing.store.batch_tables import batch_lines, batches
from billing.store.dates import this_month
from billing.store.schema import workspaces

UNFINISHED = ("validating", "in_progress", "finalizing", "cancelling")
LINE_STATES = ("waiting", "completed", "failed")
PERCENT = (80, 100)


@dataclass(frozen=True, slots=True)
class Glance:
    """`batches`: unfinished ones by status; `lines`: theirs by state. `limited`: workspaces with a limit; `spent`: how
    many of them have spent at least so many percent of one."""

    batches: Mapping[str, int]
    lines: Mapping[str, int]
    limited: int
    spent: Mapping[int, int]


def glance(connection: Connection) -> Glance:
    by_status = select(batches.c.status, func.count()).where(batches.c.cleared.is_(False))
    statuses = {status: count for status, count in connection.execute(by_status.group_by(batches.c.status))}
    by_state = select(batch_lines.c.state, func.count()).group_by(batch_lines.c.state)
    states = {state: count for state, count in connection.execute(by_state)}
    limited, *spent = connection.execute(_near_limits()).one()
    return Glance(
        {status: statuses.get(status, 0) for status in UNFINISHED},
        {state: states.get(state, 0) for state in LINE_STATES},
        limited,
        dict(zip(PERCENT, spent, strict=True)),
    )


def _near_limits() -> Any:
    w = workspaces.c
    in_month = case((w.month == this_month(), w.month_posted_nano_usd), else_=0)
    # Credits make room again; those of this month are in its sum already.
    in_all = w.posted_nano_usd - w.credited_nano_usd
    total_limit, month_limit = w.spend_limit_nano_usd, w.monthly_limit_nano_usd
    limited = or_(total_limit.is_not(None), month_limit.is_not(None))

    def spent(percent: int) -> ColumnElement[bool]:
        # The limit is divided first: its hundredfold may not fit in the column's type.
        return or_(
            and_(total_limit.is_not(None), in_all >= total_limit / 100 * percent),
            and_(month_limit.is_not(None), in_month >= month_limit / 100 * percent),
        )

    def count(condition: ColumnElement[bool]) -> ColumnElement[int]:
        return func.coalesce(func.sum(case((condition, 1), else_=0)), 0)

    counts = [count(limited), *(count(spent(percent)) for percent in PERCENT)]
    return select(*counts).where(w.revoked_at.is_(None))


def month_of_tenants(connection: Connection, top: int) -> tuple[Mapping[str, UsageSum], UsageSum]:
    """What was charged to this month, by the database's clock: of the `top` workspaces by cost, under their names, and
    of all others together, those that were revoked among them."""
    month = connection.execute(select(this_month())).scalar_one()
    found = usage(connection, ["workspace"], charged_in=month)
    there = select(workspaces.c.name).where(workspaces.c.revoked_at.is_(None))
    names = set(connection.execute(there).scalars())
    found.sort(key=lambda line: (line.group["workspace"] not in names, -line.cost_nano_usd))
    named = [line for line in found[:top] if line.group["workspace"] in names]
    return {line.group["workspace"]: line for line in named}, total(found[len(named) :])
