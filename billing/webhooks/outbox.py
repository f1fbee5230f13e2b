"""The outbox: an event is written with what it tells of, in one transaction, and delivered later."""

import json
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, insert, or_, select

from billing.store.dates import now_s
from billing.store.webhook_tables import webhook_deliveries, webhook_endpoints, webhook_events
from billing.webhooks.endpoint import EventType

# Rises when a field of a payload is taken away or changes its meaning; new fields may come at any time.
PAYLOAD_VERSION = 1
# For so long a delivery is tried.
TRIED_FOR_S = 3 * 86_400.0

_e = webhook_endpoints.c
_NOW = select(now_s())


def announce(
    connection: Connection, event_type: EventType, *, workspace_id: str, data: Mapping[str, Any]
) -> str | None:
    """Writes the event for every endpoint that takes it; returns its id, or None where there is none.

    Call it in the transaction of the change itself: then neither exists without the other.
    """
    takers = _takers(connection, event_type, workspace_id)
    return write(connection, event_type, takers, workspace_id=workspace_id, data=data) if takers else None


def write(
    connection: Connection,
    event_type: EventType,
    endpoint_ids: list[str],
    *,
    workspace_id: str | None,
    data: Mapping[str, Any],
) -> str:
    """Writes an event for these endpoints, to be sent at once; returns its id."""
    now: float = connection.execute(_NOW).scalar_one()
    event_id = f"evt_{secrets.token_hex(12)}"
    payload = {
        "version": PAYLOAD_VERSION,
        "id": event_id,
        "type": event_type,
        "created": datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds"),
        "data": dict(data),
    }
    row = {
        "id": event_id,
        "type": event_type,
        "workspace_id": workspace_id,
        "payload": json.dumps(payload, separators=(",", ":")),
        "created_at": now,
    }
    connection.execute(insert(webhook_events), row)
    waiting = {
        "event_id": event_id,
        "state": "waiting",
        "attempts": 0,
        "due_at": now,
        "give_up_at": now + TRIED_FOR_S,
    }
    connection.execute(insert(webhook_deliveries), [{**waiting, "endpoint_id": one} for one in endpoint_ids])
    return event_id


def _takers(connection: Connection, event_type: EventType, workspace_id: str) -> list[str]:
    whose = or_(_e.workspace_id.is_(None), _e.workspace_id == workspace_id)
    found = connection.execute(select(_e.id, _e.events).where(_e.state == "active", whose).order_by(_e.id))
    return [row.id for row in found if not (events := json.loads(row.events)) or event_type in events]
