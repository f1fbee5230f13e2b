"""What the ledger keeps of a compression, in plain values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from billing.price import exact_usd
from serve.reports.moments import stamp

if TYPE_CHECKING:
    from billing.books.receipts import StoredReceipt


def receipt_fields(one: StoredReceipt) -> dict[str, Any]:
    return {
        "event_id": one.event_id,
        "request_id": one.request_id,
        "workspace": one.workspace,
        "project": one.project,
        "model": one.model_id,
        "created_at": stamp(one.created_at),
        "settled_at": stamp(one.settled_at),
        "charged_usd": exact_usd(one.charged_nano_usd),
        "receipt": json.loads(one.receipt),
    }
