"""Adjustments that disagree with the rest of the ledger: with their audit entries, or with the events they refund."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, and_, func, or_, select
from sqlalchemy.engine import Row

from billing.books.invariants import MOST_NAMED
from billing.ledger.adjustment_rows import AUDITED
from billing.price import exact_usd
from billing.store.rollup_tables import archived_refunds
from billing.store.schema import adjustments, audit_log, usage_events

_a, _l, _e, _r = adjustments.c, audit_log.c, usage_events.c, archived_refunds.c
_ENTRY = and_(_l.subject == _a.id, _l.action == AUDITED)
_COMPARED = ("kind", "nano_usd", "event_id", "month", "reason", "idempotency_key")


@dataclass(frozen=True, slots=True)
class WrongAdjustment:
    """An adjustment that was changed, made or deleted past the ledger; `problem` says which."""

    adjustment_id: str
    workspace_id: str
    problem: str


def wrong_adjustments(connection: Connection) -> list[WrongAdjustment]:
    """At most `MOST_NAMED` of each kind. Both tables are append-only and are written together."""
    return [*_changed(connection), *_missing(connection), *_beyond_their_events(connection)]


def _changed(connection: Connection) -> Iterator[WrongAdjustment]:
    statement = (
        select(adjustments, _l.workspace_id.label("audited_workspace_id"), _l.details)
        .outerjoin(audit_log, _ENTRY)
        .order_by(_a.id)
    )
    found = 0
    for row in connection.execute(statement):
        problem = _difference(row)
        if problem is not None and found < MOST_NAMED:
            found += 1
            yield WrongAdjustment(row.id, row.workspace_id, problem)


def _difference(row: Row[Any]) -> str | None:
    if row.details is None:
        return "has no entry in the audit log"
    audited = json.loads(row.details)
    if row.audited_workspace_id != row.workspace_id:
        return f"is of workspace {row.audited_workspace_id} in the audit log"
    wrong = [name for name in _COMPARED if getattr(row, name) != audited.get(name)]
    told = (
        f"the {name} {getattr(row, name)!r}, and {audited.get(name)!r} in the audit log" for name in wrong
    )
    return f"has {'; '.join(told)}" if wrong else None


def _missing(connection: Connection) -> list[WrongAdjustment]:
    statement = (
        select(_l.subject, _l.workspace_id)
        .outerjoin(adjustments, _a.id == _l.subject)
        .where(_l.action == AUDITED, _a.id.is_(None))
        .order_by(_l.id)
        .limit(MOST_NAMED)
    )
    rows = connection.execute(statement).all()
    return [
        WrongAdjustment(row.subject, row.workspace_id, "is in the audit log and nowhere else") for row in rows
    ]


def _beyond_their_events(connection: Connection) -> list[WrongAdjustment]:
    rows = connection.execute(_refunds_beyond_events().limit(MOST_NAMED)).all()
    return [WrongAdjustment(row.last_id, row.workspace_id, _beyond(row)) for row in rows]


def _beyond(row: Row[Any]) -> str:
    if row.charged is None:
        return f"refunds event {row.event_id}, which is not there"
    if row.workspace_id != row.event_workspace_id:
        return f"refunds event {row.event_id} of workspace {row.event_workspace_id}"
    return (
        f"is the last of refunds of {exact_usd(int(row.refunded))} USD in all of event {row.event_id}, which was "
        f"charged {exact_usd(row.charged)} USD"
    )


def _refunds_beyond_events() -> Select[Any]:
    refunds = (
        select(
            _a.event_id,
            _a.workspace_id,
            func.max(_a.id).label("last_id"),
            func.sum(-_a.nano_usd).label("refunded"),
        )
        .where(_a.event_id.is_not(None))
        .group_by(_a.event_id, _a.workspace_id)
        .subquery()
    )
    # Of an archived event both were kept, if it was refunded before.
    charged = func.coalesce(_e.cost_nano_usd - _e.written_off_nano_usd, _r.charged_nano_usd)
    owner = func.coalesce(_e.workspace_id, _r.workspace_id)
    return (
        select(refunds, charged.label("charged"), owner.label("event_workspace_id"))
        .outerjoin(usage_events, _e.event_id == refunds.c.event_id)
        .outerjoin(archived_refunds, _r.event_id == refunds.c.event_id)
        .where(or_(charged.is_(None), refunds.c.refunded > charged, refunds.c.workspace_id != owner))
        .order_by(refunds.c.last_id)
    )
