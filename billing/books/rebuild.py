"""Recomputes balances from what cannot be rewritten, after somebody edited a row or restored half a backup."""

from datetime import datetime

from sqlalchemy import Connection, delete, insert, select, update

from billing.accounts import audit_log
from billing.accounts.audit_log import AuditEntry
from billing.books import reconciliation
from billing.books.reconciliation import FIGURES, Balances, Difference
from billing.errors import RebuildRefused
from billing.store.schema import workspace_months, workspaces


def rebuild_balances(connection: Connection, *, actor: str, now: datetime) -> list[Difference]:
    """Sets every balance to what its events, holds and collections add up to; returns what was different.

    All or nothing, in the caller's transaction. Raises `RebuildRefused`.
    """
    # Locked before anything is summed: what a settlement has charged but not committed is waited for, and what it
    # charges afterwards is added to the new figures.
    locking = select(workspaces.c.id).order_by(workspaces.c.id).with_for_update(key_share=True)
    locked = set(connection.execute(locking).scalars())
    found = [
        row for row in reconciliation.balances(connection) if row.workspace_id in locked and row.differences
    ]
    for row in found:
        _rebuild(connection, row)
        details = {
            f"{difference.figure}_nano_usd": [difference.stored_nano_usd, difference.rebuilt_nano_usd]
            for difference in row.differences
        }
        entry = AuditEntry(now, actor, "workspace.rebuild", row.workspace_id, row.workspace_id, details)
        audit_log.record(connection, entry)
    return [difference for row in found for difference in row.differences]


def _rebuild(connection: Connection, row: Balances) -> None:
    posted, collected = row.rebuilt["posted"], row.rebuilt["collected"]
    if collected > posted:
        raise RebuildRefused(row.workspace_id, posted_nano_usd=posted, collected_nano_usd=collected)
    values = {f"{figure}_nano_usd": row.rebuilt[figure] for figure in FIGURES}
    connection.execute(update(workspaces).where(workspaces.c.id == row.workspace_id).values(**values))
    _rebuild_months(connection, row)


def _rebuild_months(connection: Connection, row: Balances) -> None:
    connection.execute(delete(workspace_months).where(workspace_months.c.workspace_id == row.workspace_id))
    months = [
        {"workspace_id": row.workspace_id, "month": month, "posted_nano_usd": amount}
        for month, amount in row.other_months().items()
    ]
    if months:
        connection.execute(insert(workspace_months), months)
