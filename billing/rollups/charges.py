"""What a usage event saved, beside what it charged (`billing.store.charged`): once, for everything that sums events."""

from sqlalchemy import ColumnElement, case, func, or_

from billing.store.charged import CHARGED as CHARGED
from billing.store.charged import charged_month as charged_month
from billing.store.schema import usage_events

_e = usage_events.c
# Of a prompt that was compressed: what was not sent. Zero where no compression was asked for.
TOKENS_SAVED: ColumnElement[int] = func.coalesce(_e.original_tokens - _e.prompt_tokens, 0)
# Before what the compression cost. An event of which something was written off was charged all that there was room for,
# and would have been without compression, so it counts no saving.
SAVED: ColumnElement[int] = case(
    (or_(_e.written_off_nano_usd == 0, _e.saved_nano_usd < 0), _e.saved_nano_usd), else_=0
)
