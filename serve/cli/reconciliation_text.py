"""A reconciliation as `pith reconcile` prints it: fields for programs, sentences for people."""

from __future__ import annotations

from typing import Any

from billing.books.books import Reconciliation
from billing.books.reconciliation import Difference
from billing.price import exact_usd


def reconciliation_fields(found: Reconciliation) -> dict[str, Any]:
    posted, collected = found.total("posted"), found.total("collected")
    return {
        "clean": found.is_clean,
        "workspaces": len(found.balances),
        "events": sum(row.events for row in found.balances),
        "posted_usd": exact_usd(posted),
        "collected_usd": exact_usd(collected),
        "uncollected_usd": exact_usd(posted - collected),
        "held_usd": exact_usd(found.total("held")),
        "written_off_usd": exact_usd(found.written_off_nano_usd),
        "differences": [difference_fields(one) for one in found.differences],
        "mispriced_events": [
            {
                "event_id": one.event_id,
                "workspace_id": one.workspace_id,
                "charged_usd": exact_usd(one.charged.nano_usd),
                "due_usd": exact_usd(one.due.nano_usd),
            }
            for one in found.mispriced
        ],
        "spool_waiting": found.spool_waiting,
        "spool_refused": found.spool_refused,
    }


def difference_fields(one: Difference) -> dict[str, str]:
    return {
        "workspace_id": one.workspace_id,
        "figure": one.figure,
        "stored_usd": exact_usd(one.stored_nano_usd),
        "rebuilt_usd": exact_usd(one.rebuilt_nano_usd),
        "difference_usd": exact_usd(one.stored_nano_usd - one.rebuilt_nano_usd),
    }


def reconciliation_text(fields: dict[str, Any]) -> str:
    lines = [
        f"rebuilt: {one['figure']} of {one['workspace_id']} from {one['stored_usd']} to {one['rebuilt_usd']} USD"
        for one in fields["rebuilt"]
    ]
    lines.append(
        f"{fields['events']} events of {fields['workspaces']} workspaces: posted {fields['posted_usd']} USD = "
        f"collected {fields['collected_usd']} + uncollected {fields['uncollected_usd']}; "
        f"held {fields['held_usd']} USD"
    )
    if fields["written_off_usd"] != exact_usd(0):
        lines.append(
            f"written off: {fields['written_off_usd']} USD of usage, for which the limits had no room"
        )
    lines += [
        f"difference: {one['figure']} of {one['workspace_id']} is {one['stored_usd']} USD in its row and "
        f"{one['rebuilt_usd']} USD from the rows below it: {one['difference_usd']} USD"
        for one in fields["differences"]
    ]
    lines += [
        f"difference: event {one['event_id']} of {one['workspace_id']} was charged {one['charged_usd']} USD, and "
        f"its tokens cost {one['due_usd']} USD by the price list that it names"
        for one in fields["mispriced_events"]
    ]
    if fields["spool_waiting"]:
        lines.append(f"spool: {fields['spool_waiting']} events wait here and are not in the ledger yet")
    if fields["spool_refused"]:
        lines.append(
            f"spool: {fields['spool_refused']} events were refused by the ledger and need an operator"
        )
    lines.append("clean: everything adds up" if fields["clean"] else "NOT clean")
    return "\n".join(lines)
