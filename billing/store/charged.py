"""What a usage event was charged and the month that it counts toward: once, for everything that sums events."""

from sqlalchemy import ColumnElement, Connection, func

from billing.store.dates import calendar
from billing.store.schema import usage_events

_e = usage_events.c
# The cost of its tokens, less what was written off.
CHARGED: ColumnElement[int] = _e.cost_nano_usd - _e.written_off_nano_usd


def charged_month(connection: Connection) -> ColumnElement[str]:
    """By the database's clock when it was charged. Events of older releases count to the month of their settlement."""
    return func.coalesce(_e.month, calendar(connection, _e.settled_at, "month"))
