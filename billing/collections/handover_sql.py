"""The SQL that hands an open collection to a payment system: it is claimed, then handed over or put off.

A claim is a time until which other servers leave the collection alone. A server that dies in between leaves a claim
that ends, and the next attempt carries the same idempotency key.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, and_, or_, select, update

from billing.collections import collection_sql
from billing.collections.collection import Collection
from billing.collections.payment_hook import HookAnswer
from billing.store.schema import collections

FIRST_PAUSE_S = 30
LONGEST_PAUSE_S = 3600

_c = collections.c


def claim_next(connection: Connection, *, now: datetime, until: datetime) -> Collection | None:
    """The oldest open collection that is due to be handed over, kept from other servers until `until`."""
    due = or_(_c.hook_due_at.is_(None), _c.hook_due_at <= now)
    waits = and_(_c.state == "open", _c.handed_over_at.is_(None), due)
    # Two servers take two rows. SQLite has one writer, and ignores the clause.
    first = select(_c.id).where(waits).order_by(_c.created_at, _c.id).limit(1)
    collection_id = connection.execute(first.with_for_update(skip_locked=True)).scalar_one_or_none()
    if collection_id is None:
        return None
    connection.execute(update(collections).where(_c.id == collection_id).values(hook_due_at=until))
    return collection_sql.find(connection, collection_id)


def hand_over(
    connection: Connection, claimed: Collection, answer: HookAnswer, *, actor: str, now: datetime
) -> Collection:
    """Marks it as handed over, and as what the payment system answered.

    Where somebody closed or reopened it while the hook ran, only the audit log takes the answer.
    """
    collection_sql.lock_for(connection, claimed.id)
    found = collection_sql.find(connection, claimed.id)
    still_claimed = found.state == "open" and found.times_opened == claimed.times_opened
    details = {"answer": answer.state, "reference": answer.reference, "output": answer.output}
    action = "collection.hand_over" if still_claimed else "collection.answer_late"
    _record(connection, action, found, details, actor=actor, now=now)
    if not still_claimed:
        return found
    collection_sql.write(connection, found.id, {"handed_over_at": now, "hook_due_at": None}, now)
    if answer.state == "open":
        if answer.reference is not None:
            collection_sql.write(connection, found.id, {"reference": answer.reference}, now)
        return collection_sql.find(connection, found.id)
    return collection_sql.move(
        connection, found.id, answer.state, reference=answer.reference, actor=actor, now=now
    )


def put_off(
    connection: Connection, claimed: Collection, problem: str, *, actor: str, now: datetime
) -> datetime | None:
    """Notes the failure; returns when it is tried again, each time later, or None where it is closed now."""
    collection_sql.lock_for(connection, claimed.id)
    found = collection_sql.find(connection, claimed.id)
    counting = update(collections).where(_c.id == claimed.id).values(hook_attempts=_c.hook_attempts + 1)
    attempts = connection.execute(counting.returning(_c.hook_attempts)).scalar_one()
    due_at = now + pause_after(attempts)
    connection.execute(update(collections).where(_c.id == claimed.id).values(hook_due_at=due_at))
    details = {"problem": problem, "attempt": attempts, "again_at": due_at}
    _record(connection, "collection.hook_fail", found, details, actor=actor, now=now)
    return due_at if found.state == "open" else None


def pause_after(attempts: int) -> timedelta:
    """Doubles with every failure, up to an hour."""
    # Bounded before the power is taken: a hook may fail for years.
    return timedelta(seconds=min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(attempts - 1, 16)))


def _record(
    connection: Connection,
    action: str,
    found: Collection,
    details: Mapping[str, Any],
    *,
    actor: str,
    now: datetime,
) -> None:
    collection_sql.record(connection, action, found.id, found.workspace_id, details, actor=actor, now=now)
