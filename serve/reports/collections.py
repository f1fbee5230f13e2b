"""A collection in plain values, and the columns of an export."""

from __future__ import annotations

from typing import Any

from billing.collections.collection import Collection
from billing.price import exact_usd
from serve.reports.moments import stamp

EXPORTED = (
    "id",
    "idempotency_key",
    "workspace_id",
    "workspace",
    "cents",
    "usd",
    "state",
    "reference",
    "note",
    "times_opened",
    "created_at",
    "updated_at",
    "handed_over_at",
    "closed_at",
)


def collection_fields(collection: Collection) -> dict[str, Any]:
    return {
        "id": collection.id,
        "idempotency_key": collection.idempotency_key,
        "workspace_id": collection.workspace_id,
        "workspace": collection.workspace_name,
        "cents": collection.cents,
        "usd": exact_usd(collection.nano_usd),
        "state": collection.state,
        "reference": collection.reference,
        "note": collection.note,
        "times_opened": collection.times_opened,
        "created_at": stamp(collection.created_at),
        "updated_at": stamp(collection.updated_at),
        "handed_over_at": stamp(collection.handed_over_at),
        "closed_at": stamp(collection.closed_at),
    }
