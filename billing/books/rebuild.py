"""Recomputes balances from what cannot be rewritten, after somebody edited a row or restored half a backup."""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select, update

from billing.accounts import audit_log
from billing.accounts.audit_log import AuditEntry
from billing.books import reconciliation
from billing.books.proof import ChangedEvents
from billing.books.reconciliation import FIGURES, MOST_NAMED, Balances, Difference, rebuild_keys
from billing.errors import BillingError, RebuildRefused
from billing.rollups import checkpoint_sql
from billing.rollups.event_sums import event_sums, wrong_sums
from billing.rollups.refill import WrongRow, refill
from billing.store.schema import workspace_months, workspaces


class EventsChanged(RebuildRefused):
    """Events are not those that were proven: a balance that was made of them might forget a debt."""

    def __init__(self, changed: Sequence[ChangedEvents]) -> None:
        first = changed[0]
        BillingError.__init__(
            self,
            f"nothing is rebuilt while events are not those that were proven, in {len(changed)} stretches of them, the "
            f"first from id {first.from_id or '(the first)'} to {first.until_id}: restore these events from a backup, "
            "then rebuild again",
        )


def rebuild_balances(
    connection: Connection,
    *,
    actor: str,
    now: datetime,
    distrusted: Collection[str] = (),
    wrong: Sequence[WrongRow] = (),
) -> list[Difference]:
    """Sets every balance to what its events, adjustments, holds and collections add up to, and every sum of events to
    what they add up to; returns what was different.

    `distrusted`: where the stretches begin of which something else was kept than their events add up to.
    `wrong`: rows of sums that were found to be wrong, whose workspaces' sums are made anew.

    All or nothing, in the caller's transaction. Raises `RebuildRefused`.
    """
    # Locked before anything is summed: what a settlement has charged but not committed is waited for, and what it
    # charges afterwards is added to the new figures.
    locking = select(workspaces.c.id).order_by(workspaces.c.id).with_for_update(key_share=True)
    locked = set(connection.execute(locking).scalars())
    checkpoint_sql.forget(connection, distrusted)
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
    rebuilt = [difference for row in found for difference in row.differences]
    rebuilt += _refilled(connection, locked, wrong, actor, now)
    return rebuilt + _rebuilt_keys(connection, actor, now)


def _rebuilt_keys(connection: Connection, actor: str, now: datetime) -> list[Difference]:
    found = rebuild_keys(connection)
    for one in found:
        details = {one.figure: [one.stored_nano_usd, one.rebuilt_nano_usd]}
        entry = AuditEntry(now, actor, "key.rebuild", one.workspace_id, one.figure.split()[-1], details)
        audit_log.record(connection, entry)
    return found


def _refilled(
    connection: Connection, locked: set[str], rows: Sequence[WrongRow], actor: str, now: datetime
) -> list[Difference]:
    """The sums that usage is read from, of the workspaces where one is wrong."""
    sums = [one for one in wrong_sums(connection, event_sums(connection)) if one.workspace_id in locked]
    named = {(one.workspace_id, one.table) for one in sums}
    its = [one for one in rows if one.workspace_id in locked]
    others = [one for one in its if (one.workspace_id, one.table) not in named]
    wrong = [*map(reconciliation.of_sum, sums), *map(reconciliation.of_row, others)]
    _refill(connection, its, {one.workspace_id for one in sums})
    for workspace_id in sorted({one.workspace_id for one in wrong}):
        details = {
            one.figure: [one.stored_nano_usd, one.rebuilt_nano_usd]
            for one in wrong
            if one.workspace_id == workspace_id
        }
        entry = AuditEntry(now, actor, "workspace.rebuild", workspace_id, workspace_id, details)
        audit_log.record(connection, entry)
    return wrong


def _refill(connection: Connection, rows: Sequence[WrongRow], owners: Collection[str]) -> None:
    """Nothing is charged meanwhile: the months that are known to be wrong are read, and all events of a workspace
    only where that was not enough."""
    for workspace_id, month in sorted({(one.workspace_id, one.settled_month) for one in rows}):
        refill(connection, workspace_id, month)
    left = {one.workspace_id for one in wrong_sums(connection, event_sums(connection))} if owners else set()
    # More may be wrong than were named.
    more = {one.workspace_id for one in rows} if len(rows) >= MOST_NAMED else set()
    for workspace_id in sorted((left & {*owners}) | more):
        refill(connection, workspace_id)


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
