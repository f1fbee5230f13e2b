"""Recomputes balances from what cannot be rewritten, after somebody edited a row or restored half a backup."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from billing.accounts import audit_log
from billing.accounts.audit_log import AuditEntry
from billing.books.invariants import FIGURES, MOST_NAMED, Violation, violations, wrong_counters
from billing.books.proof import ChangedEvents
from billing.errors import BillingError, RebuildRefused
from billing.rollups import checkpoint_sql
from billing.rollups.due_sums import refill
from billing.store.budget_tables import budget_counters
from billing.store.schema import api_keys, key_months, workspace_months, workspaces

_BALANCES = {
    "workspaces": (workspaces, workspace_months, workspace_months.c.workspace_id),
    "api_keys": (api_keys, key_months, key_months.c.key_id),
}


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
    wrong: Sequence[Violation] = (),
) -> list[Violation]:
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
    found = [one for one in violations(connection) if one.workspace_id in locked]
    balances = [one for one in found if one.table == "workspaces"]
    _set_all(connection, balances)
    _note(connection, actor, now, balances, "_nano_usd")
    sums = [one for one in found if one.table not in _BALANCES]
    named = {(one.workspace_id, one.table) for one in sums}
    rows = [one for one in wrong if one.workspace_id in locked]
    sums += [one for one in rows if (one.workspace_id, one.table) not in named]
    _refill(connection, rows, {owner for owner, _ in named})
    _note(connection, actor, now, sums, "")
    # The balances of keys are made of the sums.
    of_keys = [one for one in violations(connection) if one.table == "api_keys"]
    _set_all(connection, of_keys)
    for one in of_keys:
        details = {one.figure: [one.stored_nano_usd, one.rebuilt_nano_usd]}
        entry = AuditEntry(now, actor, "key.rebuild", one.workspace_id, one.key[0], details)
        audit_log.record(connection, entry)
    of_budgets = [one for one in wrong_counters(connection, full=True) if one.workspace_id in locked]
    for one in of_budgets:
        counter, figure = one.key
        setting = update(budget_counters).where(budget_counters.c.id == counter)
        connection.execute(setting.values({f"{figure}_nano_usd": one.rebuilt_nano_usd}))
    _note(connection, actor, now, of_budgets, "_nano_usd")
    return [*balances, *sums, *of_keys, *of_budgets]


def _note(connection: Connection, actor: str, now: datetime, changed: Sequence[Violation], unit: str) -> None:
    for id in sorted({one.workspace_id for one in changed}):
        own = [one for one in changed if one.workspace_id == id]
        details = {f"{one.figure}{unit}": [one.stored_nano_usd, one.rebuilt_nano_usd] for one in own}
        audit_log.record(connection, AuditEntry(now, actor, "workspace.rebuild", id, id, details))


def _refill(connection: Connection, rows: Sequence[Violation], owners: Collection[str]) -> None:
    """Nothing is charged meanwhile: the months that are known to be wrong are read, and all events of a workspace
    only where that was not enough."""
    for workspace_id, month in sorted({(one.workspace_id, one.month) for one in rows}):
        refill(connection, workspace_id, month)
    left = violations(connection) if owners else []
    again = {one.workspace_id for one in left if one.table not in _BALANCES} & {*owners}
    # More may be wrong than were named.
    more = {one.workspace_id for one in rows} if len(rows) >= MOST_NAMED else set()
    for workspace_id in sorted(again | more):
        refill(connection, workspace_id)


def _set_all(connection: Connection, wrong: Sequence[Violation]) -> None:
    """Balances, and what is charged in the months that their rows do not count."""
    for table, id in dict.fromkeys((one.table, one.key[0]) for one in wrong):
        due = {one.key[1]: one.rebuilt_nano_usd for one in wrong if one.key[0] == id}
        balances, months, owner = _BALANCES[table]
        row = connection.execute(select(balances).where(balances.c.id == id)).one()._mapping
        values = {f"{figure}_nano_usd": due.pop(figure) for figure in FIGURES if figure in due}
        if table == "workspaces":
            _refuse_less_than_collected(id, {**row, **values})
        if values:
            connection.execute(update(balances).where(balances.c.id == id).values(values))
        connection.execute(delete(months).where(owner == id, months.c.month.in_([*due, row["month"]])))
        others = [{owner.name: id, "month": month, "posted_nano_usd": nano} for month, nano in due.items()]
        if others:
            connection.execute(insert(months), others)


def _refuse_less_than_collected(id: str, row: Mapping[str, Any]) -> None:
    posted, collected = row["posted_nano_usd"], row["collected_nano_usd"]
    if collected > posted:
        raise RebuildRefused(id, posted_nano_usd=posted, collected_nano_usd=collected)
