"""Deletes announcements of limits that nothing can announce again, so that their table does not grow with the months.

A percentage of a month is announced in that month alone. One of all time is kept while its limit is in force, and long
after that: a limit that is set back to what it was is not announced anew.
"""

from datetime import UTC, datetime, timedelta

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, or_, select, tuple_

from billing.store.database_clock import now_s
from billing.store.schema import api_keys, workspaces
from billing.store.webhook_tables import limit_alerts
from billing.usage import month_of

# A month is over on every server by then, whatever its clock.
MONTHS_KEPT = timedelta(days=40)
KEPT_S = 400 * 86_400.0
DELETED_AT_ONCE = 1000

_a, _w, _k = limit_alerts.c, workspaces.c, api_keys.c
_ID = tuple_(*limit_alerts.primary_key.columns)


def has_old(connection: Connection) -> bool:
    """Whether there is something to delete."""
    return bool(connection.execute(select(exists().where(_old(connection)))).scalar_one())


def forget_old(connection: Connection) -> int:
    """Deletes some; how many. There may be more."""
    some = select(*limit_alerts.primary_key.columns).where(_old(connection)).limit(DELETED_AT_ONCE)
    return connection.execute(delete(limit_alerts).where(_ID.in_(some))).rowcount


def _old(connection: Connection) -> ColumnElement[bool]:
    now = datetime.fromtimestamp(connection.execute(select(now_s())).scalar_one(), UTC)
    of_workspace = exists().where(_w.id == _a.workspace_id, _w.spend_limit_nano_usd == _a.limit_nano_usd)
    of_key = exists().where(_k.id == _a.key_id, _k.spend_limit_nano_usd == _a.limit_nano_usd)
    in_force = or_(
        and_(_a.key_id == "", of_workspace.correlate(limit_alerts)), of_key.correlate(limit_alerts)
    )
    return or_(
        and_(_a.span == "month", _a.month < month_of(now - MONTHS_KEPT)),
        and_(_a.span == "total", _a.reached_at < now.timestamp() - KEPT_S, ~in_force),
    )
