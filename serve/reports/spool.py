"""A usage event in the spool, in plain values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from billing.ledger.spool import SpooledEvent


def spooled_fields(spooled: SpooledEvent) -> dict[str, Any]:
    try:
        event = json.loads(spooled.event)
    except ValueError:
        # Shown as it is: that it is not JSON may be why the event was set aside.
        event = spooled.event
    return {
        "event_id": spooled.event_id,
        "state": "waiting" if spooled.refusal is None else "set aside",
        "refusal": spooled.refusal,
        "event": event,
    }
