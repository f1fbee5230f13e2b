"""A credit, an adjustment or a refund in plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from billing.price import exact_usd
from serve.reports.moments import stamp

if TYPE_CHECKING:
    from billing.adjustments.adjustment import Adjustment


def adjustment_fields(one: Adjustment) -> dict[str, Any]:
    return {
        "id": one.id,
        "created_at": stamp(one.created_at),
        "month": one.month,
        "workspace_id": one.workspace_id,
        "workspace": one.workspace_name,
        "kind": one.kind,
        "usd": exact_usd(one.nano_usd),
        "event_id": one.event_id,
        "project_id": one.project_id,
        "key_id": one.key_id,
        "reason": one.reason,
        "actor": one.actor,
        "idempotency_key": one.idempotency_key,
    }
