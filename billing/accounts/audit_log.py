"""Audit log of accounts and collections, and the requests of administrators under idempotency keys."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, insert, select

from billing.store.dates import now_s, within
from billing.store.schema import administrators_requests, audit_log

MAX_ACTOR_CHARS = 128


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """`subject` is the id of what changed. `details` of a change has each field as `[before, after]`."""

    at: datetime
    actor: str
    action: str
    workspace_id: str | None
    subject: str
    details: Mapping[str, Any]


def record(connection: Connection, entry: AuditEntry) -> None:
    """Call it in the transaction of the change itself: then neither exists without the other."""
    row = {
        "at": entry.at,
        "actor": entry.actor[:MAX_ACTOR_CHARS],
        "action": entry.action,
        "workspace_id": entry.workspace_id,
        "subject": entry.subject,
        "details": json.dumps(entry.details, default=_plain, separators=(",", ":")),
    }
    connection.execute(insert(audit_log), row)


def entries(
    connection: Connection,
    *,
    workspace_id: str | None = None,
    subject: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = 1000,
) -> list[AuditEntry]:
    """The last `limit` entries from `since` to before `until`, oldest first; None is any."""
    columns = audit_log.c
    statement = select(audit_log).order_by(columns.id.desc()).limit(limit)
    if workspace_id is not None:
        statement = statement.where(columns.workspace_id == workspace_id)
    if subject is not None:
        statement = statement.where(columns.subject == subject)
    rows = connection.execute(within(statement, columns.at, since, until)).all()
    return [
        AuditEntry(row.at, row.actor, row.action, row.workspace_id, row.subject, json.loads(row.details))
        for row in reversed(rows)
    ]


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    raise TypeError(f"an audit entry cannot hold a {type(value).__name__}")


KEPT_S = 86_400.0
_r = administrators_requests.c


@dataclass(frozen=True, slots=True)
class BegunRequest:
    """What somebody began: `digest` is the request's SHA-256, in hexadecimal."""

    actor: str
    idempotency_key: str
    digest: str


def begin(connection: Connection, request: BegunRequest) -> str | None:
    """Notes it, for a day; the digest of what was begun under its key before, and then nothing is noted. Of two at
    once, one raises `RowRefused`."""
    connection.execute(delete(administrators_requests).where(_r.began_at <= now_s() - KEPT_S))
    found: str | None = connection.execute(select(_r.digest).where(*_same(request))).scalar()
    if found is None:
        noted = {"actor": request.actor[:MAX_ACTOR_CHARS], "idempotency_key": request.idempotency_key}
        connection.execute(
            insert(administrators_requests).values(**noted, digest=request.digest, began_at=now_s())
        )
    return found


def forget(connection: Connection, request: BegunRequest) -> None:
    """It was refused: nothing was made, and it may be sent again."""
    connection.execute(delete(administrators_requests).where(*_same(request)))


def _same(request: BegunRequest) -> tuple[ColumnElement[bool], ...]:
    return _r.actor == request.actor[:MAX_ACTOR_CHARS], _r.idempotency_key == request.idempotency_key
