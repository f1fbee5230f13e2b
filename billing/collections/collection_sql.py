"""The SQL of collections: which workspaces are due, and how a collection is cut, found and moved on.

What moves money locks the workspace's row first, as a settlement does, and leaves its entry in the audit log and what
webhooks are told in the same transaction. A settlement itself does nothing for collections."""

import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Select, and_, func, insert, or_, select, update

from billing.accounts import account_sql, audit_log
from billing.accounts.account_sql import Page, paged
from billing.accounts.audit_log import AuditEntry
from billing.collections.collection import (
    FINAL,
    NANO_PER_CENT,
    Collection,
    HookAnswer,
    State,
    check_move,
    whole_cents,
)
from billing.errors import UnknownCollection
from billing.store.dates import within
from billing.store.schema import collections, workspaces
from billing.webhooks import outbox
from billing.webhooks.endpoint import EventType

_w, _c = workspaces.c, collections.c
_FIELDS = [column for column in _c if column.name not in ("hook_attempts", "hook_due_at")]
# Below zero where something was credited that was collected before.
_uncollected = _w.posted_nano_usd - _w.credited_nano_usd - _w.collected_nano_usd
_EVENTS: dict[State, EventType] = {
    "open": "collection.opened",
    "paid": "collection.paid",
    "failed": "collection.failed",
    "void": "collection.void",
}


def due_workspaces(connection: Connection, threshold_cents: int) -> list[str]:
    """The workspaces whose uncollected balance has reached the threshold."""
    reached = _uncollected >= threshold_cents * NANO_PER_CENT
    return list(connection.execute(select(_w.id).where(reached).order_by(_w.id)).scalars())


def cut(
    connection: Connection, workspace_id: str, *, threshold_cents: int, actor: str, now: datetime
) -> Collection | None:
    """Cuts the whole cents of the uncollected balance; None if another server cut first, or it is too small."""
    uncollected = _locked_uncollected(connection, workspace_id)
    cents = whole_cents(uncollected, threshold_cents=threshold_cents)
    if cents == 0:
        return None
    # Collections are never deleted, so within the lock the count is the number of the last.
    before = select(func.count()).where(_c.workspace_id == workspace_id)
    number = connection.execute(before).scalar_one() + 1
    collection_id = f"col_{secrets.token_hex(10)}"
    new = {
        "id": collection_id,
        "workspace_id": workspace_id,
        "idempotency_key": f"{workspace_id}-{number}",
        "cents": cents,
        "nano_usd": cents * NANO_PER_CENT,
        "state": "open",
        "times_opened": 1,
        "hook_attempts": 0,
        "created_at": now,
        "updated_at": now,
    }
    connection.execute(insert(collections), new)
    _move_collected(connection, workspace_id, cents * NANO_PER_CENT)
    details = {"cents": cents, "idempotency_key": new["idempotency_key"]}
    record(connection, "collection.cut", collection_id, workspace_id, details, actor=actor, now=now)
    return _announced(connection, collection_id)


def move(
    connection: Connection,
    collection_id: str,
    wanted: State,
    *,
    reference: str | None = None,
    note: str | None = None,
    actor: str,
    now: datetime,
) -> Collection:
    """Raises `UnknownCollection` and `IllegalMove`. A reference or a note that is None leaves what is there."""
    lock_for(connection, collection_id)
    found = find(connection, collection_id)
    check_move(collection_id, found.state, wanted)
    changes: dict[str, Any] = {"state": wanted, "closed_at": now if wanted in FINAL else None}
    if reference is not None:
        changes["reference"] = reference
    if note is not None:
        changes["note"] = note
    if wanted == "open":
        changes |= {"times_opened": found.times_opened + 1, "handed_over_at": None}
    details = {name: [getattr(found, name), value] for name, value in changes.items()}
    if wanted == "open":
        changes |= {"hook_attempts": 0, "hook_due_at": None}
    write(connection, collection_id, changes, now)
    if wanted == "void":
        _move_collected(connection, found.workspace_id, -found.nano_usd)
    record(connection, "collection.move", collection_id, found.workspace_id, details, actor=actor, now=now)
    return _announced(connection, collection_id)


def find(connection: Connection, collection_id: str) -> Collection:
    """Raises `UnknownCollection`."""
    row = None
    # NUL and lone surrogates name nothing; each database would refuse them in its own way.
    if collection_id.isprintable():
        row = connection.execute(_selection().where(_c.id == collection_id)).one_or_none()
    if row is None:
        raise UnknownCollection(collection_id)
    return Collection(**row._mapping)


def listed(
    connection: Connection,
    *,
    workspace: str | None = None,
    state: State | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    page: Page | None = None,
) -> list[Collection]:
    """Oldest first; `since` and `until` bound the time of the cut, `until` is not included; None is any."""
    statement = paged(connection, _selection(), collections, page)
    if workspace is not None:
        owner = account_sql.find_workspace(connection, workspace)
        statement = statement.where(_c.workspace_id == owner.id)
    if state is not None:
        statement = statement.where(_c.state == state)
    rows = connection.execute(within(statement, _c.created_at, since, until))
    return [Collection(**row._mapping) for row in rows]


def _locked_uncollected(connection: Connection, workspace_id: str) -> int:
    # NO KEY UPDATE, as an UPDATE takes it: the stronger lock would wait for every event that is being inserted.
    statement = select(_uncollected).where(_w.id == workspace_id)
    uncollected: int = connection.execute(statement.with_for_update(key_share=True)).scalar_one()
    return uncollected


def lock_for(connection: Connection, collection_id: str) -> None:
    """Locks a collection's workspace: changes of one workspace's collections come one after another."""
    _locked_uncollected(connection, find(connection, collection_id).workspace_id)


def _move_collected(connection: Connection, workspace_id: str, nano_usd: int) -> None:
    moving = update(workspaces).where(_w.id == workspace_id)
    connection.execute(moving.values(collected_nano_usd=_w.collected_nano_usd + nano_usd))


def write(connection: Connection, collection_id: str, values: Mapping[str, Any], now: datetime) -> None:
    connection.execute(update(collections).where(_c.id == collection_id).values(**values, updated_at=now))


def record(
    connection: Connection,
    action: str,
    collection_id: str,
    workspace_id: str,
    details: Mapping[str, Any],
    *,
    actor: str,
    now: datetime,
) -> None:
    entry = AuditEntry(now, actor, action, workspace_id, collection_id, details)
    audit_log.record(connection, entry)


def _announced(connection: Connection, collection_id: str) -> Collection:
    """The collection as it has become, which webhooks are told. A note is the operator's own, and stays here."""
    found = find(connection, collection_id)
    data = {
        "collection_id": found.id,
        "workspace_id": found.workspace_id,
        "workspace_name": found.workspace_name,
        "state": found.state,
        "cents": found.cents,
        "currency": "usd",
        "reference": found.reference,
        "times_opened": found.times_opened,
        "created_at": found.created_at.isoformat(),
    }
    outbox.announce(connection, _EVENTS[found.state], workspace_id=found.workspace_id, data=data)
    return found


def _selection() -> Select[Any]:
    named = _w.name.label("workspace_name")
    return select(*_FIELDS, named).join(workspaces, _w.id == _c.workspace_id)


FIRST_PAUSE_S = 30
LONGEST_PAUSE_S = 3600


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
    return find(connection, collection_id)


def hand_over(
    connection: Connection, claimed: Collection, answer: HookAnswer, *, actor: str, now: datetime
) -> Collection:
    """Marks it as handed over, and as what the payment system answered.

    Where somebody closed or reopened it while the hook ran, only the audit log takes the answer.
    """
    lock_for(connection, claimed.id)
    found = find(connection, claimed.id)
    still_claimed = found.state == "open" and found.times_opened == claimed.times_opened
    details = {"answer": answer.state, "reference": answer.reference, "output": answer.output}
    action = "collection.hand_over" if still_claimed else "collection.answer_late"
    _record(connection, action, found, details, actor=actor, now=now)
    if not still_claimed:
        return found
    write(connection, found.id, {"handed_over_at": now, "hook_due_at": None}, now)
    if answer.state == "open":
        if answer.reference is not None:
            write(connection, found.id, {"reference": answer.reference}, now)
        return find(connection, found.id)
    return move(connection, found.id, answer.state, reference=answer.reference, actor=actor, now=now)


def put_off(
    connection: Connection, claimed: Collection, problem: str, *, actor: str, now: datetime
) -> datetime | None:
    """Notes the failure; returns when it is tried again, each time later, or None where it is closed now."""
    lock_for(connection, claimed.id)
    found = find(connection, claimed.id)
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
    record(connection, action, found.id, found.workspace_id, details, actor=actor, now=now)
