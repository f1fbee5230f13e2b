"""The limits of a workspace's row: what they leave room for, and why they refuse a request."""

from typing import Any

from sqlalchemy import Connection
from sqlalchemy.engine import Row

from billing.errors import BillingDisabled, InvalidKey, QuotaExceeded
from billing.ledger.monthly_totals import posted_in
from billing.usage import Hold


def room(row: Row[Any], freed: int) -> int:
    """What the limits leave room for, once this request's own hold is gone."""
    held = row.held_nano_usd - freed
    rooms = [
        limit - posted - held
        for limit, posted in (
            (row.spend_limit_nano_usd, row.posted_nano_usd - row.credited_nano_usd),
            (row.monthly_limit_nano_usd, row.month_posted_nano_usd),
        )
        if limit is not None
    ]
    # Without a limit, more than any column holds.
    return max(0, min(rooms, default=2**63))


def refusal(connection: Connection, row: Row[Any] | None, hold: Hold) -> Exception:
    if row is None or row.revoked_at is not None:
        return InvalidKey("workspace revoked")
    if not row.billing_enabled:
        return BillingDisabled()
    wanted = hold.amount_nano_usd
    committed = row.posted_nano_usd - row.credited_nano_usd + row.held_nano_usd
    total, in_month = row.spend_limit_nano_usd, row.monthly_limit_nano_usd
    # The row may have changed between the two statements: the limit closest to being used up is named.
    if total is not None and (in_month is None or committed + wanted > total):
        return QuotaExceeded(
            span="total", limit_nano_usd=total, committed_nano_usd=committed, wanted_nano_usd=wanted
        )
    posted = row.month_posted_nano_usd
    if row.month != row.now_month:
        posted = posted_in(connection, row.id, row.now_month)
    return QuotaExceeded(
        span="month",
        limit_nano_usd=in_month or 0,
        committed_nano_usd=posted + row.held_nano_usd,
        wanted_nano_usd=wanted,
    )
