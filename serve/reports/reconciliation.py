"""What reconciling found, in plain values: all money as exact decimal text."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from billing.price import exact_usd

if TYPE_CHECKING:
    from billing.books.mispriced import WrongFigure
    from billing.books.proof import ChangedEvents
    from billing.books.reconciliation import Difference, Reconciliation
    from billing.rollups.event_sums import WrongSum


def reconciliation_fields(found: Reconciliation) -> dict[str, Any]:
    posted, collected, credited = (found.total(name) for name in ("posted", "collected", "credited"))
    return {
        "clean": found.is_clean,
        "workspaces": len(found.balances),
        "events": sum(row.events for row in found.balances),
        "posted_usd": exact_usd(posted),
        "collected_usd": exact_usd(collected),
        "credited_usd": exact_usd(credited),
        "uncollected_usd": exact_usd(posted - credited - collected),
        "held_usd": exact_usd(found.total("held")),
        "written_off_usd": exact_usd(found.written_off_nano_usd),
        "events_read": found.events_read,
        "differences": [difference_fields(one) for one in found.differences],
        "wrong_sums": [wrong_sum_fields(one) for one in found.wrong_sums],
        "wrong_archives": [asdict(one) for one in found.wrong_archives],
        "wrong_rows": [asdict(one) for one in found.wrong_rows],
        "unequal_sums": [asdict(one) for one in found.unequal_sums],
        "changed_events": [changed_fields(one) for one in found.changed],
        "mispriced_events": [
            {
                "event_id": one.event_id,
                "workspace_id": one.workspace_id,
                "charged_usd": exact_usd(one.charged.nano_usd),
                "due_usd": exact_usd(one.due.nano_usd),
                "wrong": [_wrong_fields(figure) for figure in one.wrong],
            }
            for one in found.mispriced
        ],
        "adjustments": sum(row.adjustments for row in found.balances),
        "wrong_adjustments": [asdict(one) for one in found.wrong_adjustments],
        "spool_waiting": found.spool_waiting,
        "spool_refused": found.spool_refused,
    }


def _wrong_fields(wrong: WrongFigure) -> dict[str, str | None]:
    due = wrong.due_nano_usd
    return {
        "figure": wrong.figure,
        "stored_usd": exact_usd(wrong.stored_nano_usd),
        "due_usd": None if due is None else exact_usd(due),
    }


def wrong_sum_fields(one: WrongSum) -> dict[str, Any]:
    """A sum that usage is read from, and what the events add up to."""
    return {
        "workspace_id": one.workspace_id,
        "table": one.table,
        "month": one.month,
        "stored_events": one.stored.events,
        "due_events": one.due.events,
        "stored_usd": exact_usd(one.stored.charged_nano_usd),
        "due_usd": exact_usd(one.due.charged_nano_usd),
        "stored_written_off_usd": exact_usd(one.stored.written_off_nano_usd),
        "due_written_off_usd": exact_usd(one.due.written_off_nano_usd),
    }


def changed_fields(one: ChangedEvents) -> dict[str, Any]:
    return {
        "from_id": one.from_id,
        "until_id": one.until_id,
        "events_then": one.events_then,
        "events_now": one.events_now,
    }


def difference_fields(one: Difference) -> dict[str, str]:
    return {
        "workspace_id": one.workspace_id,
        "figure": one.figure,
        "stored_usd": exact_usd(one.stored_nano_usd),
        "rebuilt_usd": exact_usd(one.rebuilt_nano_usd),
        "difference_usd": exact_usd(one.stored_nano_usd - one.rebuilt_nano_usd),
    }
