"""Webhooks and what was sent to them, in plain values, without secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from serve.reports.moments import stamp

if TYPE_CHECKING:
    from billing.webhooks.endpoint import Delivery, Endpoint


def webhook_fields(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "id": endpoint.id,
        "workspace": endpoint.workspace_name,
        "url": endpoint.url,
        "events": " ".join(endpoint.events) or "all",
        "state": endpoint.state,
        "reason": endpoint.state_reason,
        "failures": endpoint.failures,
        "created_at": stamp(endpoint.created_at),
    }


def delivery_fields(delivery: Delivery) -> dict[str, Any]:
    return {
        "event_id": delivery.event_id,
        "type": delivery.type,
        "webhook": delivery.endpoint_id,
        "state": delivery.state,
        "attempts": delivery.attempts,
        "created_at": stamp(delivery.created_at),
        "due_at": stamp(delivery.due_at) if delivery.state == "waiting" else None,
        "delivered_at": stamp(delivery.delivered_at),
        "last_status": delivery.last_status,
        "last_error": delivery.last_error,
    }
