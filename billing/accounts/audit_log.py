"""Who changed what, and when: a row for every change of an account or a collection, written with the change."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, insert, select

from billing.store.dates import within
from billing.store.schema import audit_log

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
