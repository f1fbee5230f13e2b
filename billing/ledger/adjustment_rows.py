"""Rows of adjustments as they are written, with the sums that they change and their audit entries; and the credit of
a chat that its compression made dearer.
"""

import secrets
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, insert, select, update

from billing.accounts import audit_log
from billing.accounts.audit_log import AuditEntry
from billing.store.dates import now_s
from billing.store.schema import adjustments, workspaces
from billing.usage import UsageEvent

AUDITED = "adjustment.add"
_NOTED = ("kind", "nano_usd", "event_id", "month", "reason", "idempotency_key")
_w = workspaces.c
DEARER = "its compression made this chat dearer than the engine's counts say it would have been"
LEDGER = "ledger"
# Before the event's id.
DEARER_KEY = "dearer:"


def identified(connection: Connection) -> dict[str, Any]:
    """The id of a new row, and its time by the database's clock."""
    at = datetime.fromtimestamp(connection.execute(select(now_s())).scalar_one(), UTC)
    # The millisecond first, so that new rows go to the end of the index.
    return {"id": f"adj_{int(at.timestamp() * 1000):012x}{secrets.token_hex(10)}", "created_at": at}


def write(connection: Connection, row: dict[str, Any]) -> None:
    """The row, what it changes of its workspace, whose row this transaction has locked, and its audit entry."""
    connection.execute(insert(adjustments), row)
    connection.execute(_moving(row["workspace_id"], row["nano_usd"]))
    details = {name: row[name] for name in _NOTED}
    entry = AuditEntry(row["created_at"], row["actor"], AUDITED, row["workspace_id"], row["id"], details)
    audit_log.record(connection, entry)


def credit_dearer(connection: Connection, event: UsageEvent, nano_usd: int, month: str) -> None:
    """Give back what a chat was dearer for its compression, as a refund of its event, in the transaction that charged
    it to this month."""
    row = {
        **identified(connection),
        "workspace_id": event.workspace_id,
        "kind": "refund",
        "nano_usd": -nano_usd,
        "event_id": event.event_id,
        "project_id": event.project_id,
        "key_id": event.key_id,
        "month": month,
        "actor": LEDGER,
        "reason": DEARER,
        "idempotency_key": f"{DEARER_KEY}{event.event_id}",
        "refunds_rest": False,
    }
    write(connection, row)


def _moving(workspace_id: str, nano_usd: int) -> Any:
    changed = {"month_posted_nano_usd": _w.month_posted_nano_usd + nano_usd}
    if nano_usd > 0:
        changed["posted_nano_usd"] = _w.posted_nano_usd + nano_usd
    else:
        changed["credited_nano_usd"] = _w.credited_nano_usd - nano_usd
    return update(workspaces).where(_w.id == workspace_id).values(changed)
