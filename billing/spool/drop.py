"""Drops a charge that the ledger refused: out of the spool for good, with an entry in the audit log."""

import json
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from billing.accounts import audit_log
from billing.accounts.audit_log import AuditEntry
from billing.spool.spool import Spool, SpooledEvent
from billing.store.database import Database

MOST_NOTED_CHARS = 4000


async def drop_event(
    spool: Spool, ledger: Database, event_id: str, *, actor: str, now: datetime
) -> list[SpooledEvent]:
    """Nobody is charged for it, nor for the event that it names. Raises `UnknownSpooledEvent`, and `LedgerUnavailable`
    where the entry cannot be written: then both stay. The entry comes first, so that none is dropped without one."""
    found = await spool.find_refused(event_id)

    def note(connection: Connection) -> None:
        for one in found:
            fields = _fields(one)
            details = {"refusal": one.refusal, "event": fields}
            workspace_id = _short(fields.get("workspace_id"))
            entry = AuditEntry(now, actor, "spool.drop", workspace_id, one.event_id[:64], details)
            audit_log.record(connection, entry)

    await ledger.write(note)
    return await spool.drop(event_id)


def _fields(spooled: SpooledEvent) -> dict[str, Any]:
    """The event without its receipt; its text if it is not JSON."""
    try:
        fields = json.loads(spooled.event)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        return {"text": spooled.event[:MOST_NOTED_CHARS]}
    fields.pop("receipt", None)
    return fields


def _short(workspace_id: object) -> str | None:
    return workspace_id[:32] if isinstance(workspace_id, str) else None
