"""Budgets that are 50, 80 or 100% spent: each percentage of each budget, period and person is announced once.

A charge notes in its own statement which percentage its counter has reached; upkeep looks for counters that have
reached more than was announced, which an index of these alone finds."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Select, func, or_, select, update
from sqlalchemy.engine import Row

from billing.accounts import account_sql
from billing.price import exact_usd
from billing.store.budget_tables import PERCENTS, budget_counters, budgets
from billing.store.dates import now_s
from billing.store.schema import api_keys, workspaces
from billing.store.webhook_tables import webhook_events
from billing.webhooks import outbox

# The workspace is locked meanwhile.
AT_ONCE = 50
# A workspace whose budgets had about so many events within an hour hears of further persons later.
MOST_AN_HOUR = 1000
# Of a period that has been over for longer nobody wants to hear.
TOLD_FOR_S = 86_400.0

_b, _c, _v = budgets.c, budget_counters.c, webhook_events.c
_is_over = func.coalesce(_c.ends_at < now_s() - TOLD_FOR_S, False)


def workspace_due(connection: Connection) -> str | None:
    """One that has something to announce."""
    found: str | None = connection.execute(_due(_b.workspace_id).limit(1)).scalar()
    return found


def announce(connection: Connection, workspace_id: str) -> int:
    """Announces some of what the budgets of a workspace have reached; how many events."""
    # Whoever moves money has this lock: no counter changes meanwhile, and no other server announces the same.
    account_sql.lock(connection, workspaces, workspace_id)
    project = func.coalesce(api_keys.c.project_id, _b.subject).label("project")
    columns = (budgets, budget_counters, _c.id.label("counter"), workspaces.c.name, project)
    due = _due(*columns, _is_over.label("is_over")).join(workspaces, workspaces.c.id == _b.workspace_id)
    due = due.outerjoin(api_keys, api_keys.c.id == _b.subject).where(_b.workspace_id == workspace_id)
    count = 0
    for row in connection.execute(due.order_by(_b.scope == "person", _c.id).limit(AT_ONCE)).all():
        marking = update(budget_counters).where(_c.id == row.counter)
        connection.execute(marking.values(announced_percent=row.reached_percent))
        passed = [one for one in PERCENTS if row.announced_percent < one <= row.reached_percent]
        for percent in [] if row.is_over else passed:
            outbox.announce(connection, "budget.reached", workspace_id=workspace_id, data=_data(row, percent))
            count += 1
    return count


def _due(*columns: Any) -> Select[Any]:
    events = select(_v.workspace_id).where(_v.type == "budget.reached", _v.created_at > now_s() - 3600.0)
    full = events.group_by(_v.workspace_id).having(func.count() >= MOST_AN_HOUR)
    may_be_told = or_(_b.scope != "person", _is_over, _b.workspace_id.not_in(full))
    found = select(*columns).select_from(budget_counters.join(budgets, _b.id == _c.budget_id))
    return found.where(_c.reached_percent > _c.announced_percent, may_be_told)


def _data(row: Row[Any], percent: int) -> dict[str, Any]:
    project, _, tag = row.project.partition(":")
    _, period, person = f"{row.counter}:".split(":")[:3]
    ends = row.ends_at
    return {
        "workspace_id": row.workspace_id,
        "workspace_name": row.name,
        "project_id": None if row.scope == "workspace" else project,
        "budget_id": row.budget_id,
        "scope": row.scope,
        "subject": {"person": person, "tag": tag}.get(row.scope, row.subject),
        "span": row.period,
        "period": period,
        "resets_at": None if ends is None else datetime.fromtimestamp(ends, UTC).isoformat(),
        "percent": percent,
        "limit_nano_usd": row.limit_nano_usd,
        "limit_usd": exact_usd(row.limit_nano_usd),
        "used_nano_usd": row.posted_nano_usd,
        "used_usd": exact_usd(row.posted_nano_usd),
    }
