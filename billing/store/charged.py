"""The columns of a usage event that are added up: its charge, its saving, and the month that it counts toward."""

from sqlalchemy import ColumnElement, Connection, case, func, or_

from billing.store.dates import calendar
from billing.store.schema import usage_events

_e = usage_events.c
# The cost of its tokens, less what was written off.
CHARGED: ColumnElement[int] = _e.cost_nano_usd - _e.written_off_nano_usd


def charged_month(connection: Connection) -> ColumnElement[str]:
    """By the database's clock when it was charged. Events of older releases count to the month of their settlement."""
    return func.coalesce(_e.month, calendar(connection, _e.settled_at, "month"))


# Of a prompt that was compressed: what was not sent. Zero where no compression was asked for.
TOKENS_SAVED: ColumnElement[int] = func.coalesce(_e.original_tokens - _e.prompt_tokens, 0)
# Before what the compression cost. An event of which something was written off was charged all that there was room for,
# and would have been without compression, so it counts no saving.
SAVED: ColumnElement[int] = case(
    (or_(_e.written_off_nano_usd == 0, _e.saved_nano_usd < 0), _e.saved_nano_usd), else_=0
)
