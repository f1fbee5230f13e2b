"""A statement in plain values: all money as exact decimal text."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from billing.price import exact_usd
from serve.reports.moments import stamp
from serve.reports.usage import comparison_fields, saved_fields, usage_fields

if TYPE_CHECKING:
    from billing.adjustments.adjustment import Adjustment
    from billing.books.statement import Balance, Statement
    from billing.collections.collection import Collection


def statement_fields(found: Statement, asked_at: datetime) -> dict[str, Any]:
    """The statement in plain values, all money as exact decimal text."""
    from billing.books.usage_report import total

    return {
        "workspace": found.workspace_name,
        "workspace_id": found.workspace_id,
        "month": found.month,
        "since": stamp(found.since),
        "until": stamp(found.until),
        "month_has_ended": asked_at >= found.until,
        "asked_at": stamp(asked_at),
        "opening": _balance(found.opening),
        "usage": [usage_fields(line) for line in found.usage],
        "used_usd": exact_usd(found.used_nano_usd),
        "written_off_usd": exact_usd(found.written_off_nano_usd),
        **saved_fields(total(found.usage)),
        "events_archived": found.is_archived,
        "measured_savings": [comparison_fields(one) for one in found.comparisons],
        "adjustments": [_adjustment(one) for one in found.adjustments],
        "adjusted_usd": exact_usd(found.adjusted_nano_usd),
        "collections_cut": [_collection(one) for one in found.cut],
        "collections_closed": [_collection(one) for one in found.closed],
        "paid_usd": exact_usd(found.paid_nano_usd),
        "closing": _balance(found.closing),
    }


def _balance(balance: Balance) -> dict[str, str]:
    return {
        "owed_usd": exact_usd(balance.owed_nano_usd),
        "in_collections_usd": exact_usd(balance.asked_nano_usd),
        "uncollected_usd": exact_usd(balance.uncollected_nano_usd),
    }


def _adjustment(one: Adjustment) -> dict[str, Any]:
    return {
        "id": one.id,
        "at": stamp(one.created_at),
        "kind": one.kind,
        "usd": exact_usd(one.nano_usd),
        "event_id": one.event_id,
        "reason": one.reason,
    }


def _collection(one: Collection) -> dict[str, Any]:
    return {
        "id": one.id,
        "cut_at": stamp(one.created_at),
        "cents": one.cents,
        "usd": exact_usd(one.nano_usd),
        "state": one.state,
        "reference": one.reference,
        "closed_at": stamp(one.closed_at),
    }
