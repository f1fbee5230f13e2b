"""The columns of an export, in order, with the kind of value that each has. Amounts are integers of nano-USD."""

from typing import Any, Literal

Kind = Literal["text", "integer", "boolean", "time"]
Row = dict[str, Any]

# `kind` is `usage`, or `credit`, `adjustment` or `refund`; columns of the other kind are empty. `at` is when usage was
# settled, by the server's clock, or the adjustment made, by the database's. `amount_nano_usd` is what it added to what
# is owed: over all rows of a workspace, what was ever owed, before payments.
COLUMNS: dict[str, Kind] = {
    "kind": "text",
    "id": "text",
    "at": "time",
    "month": "text",
    "workspace_id": "text",
    "project_id": "text",
    "key_id": "text",
    "amount_nano_usd": "integer",
    "request_id": "text",
    "model_id": "text",
    "route": "text",
    "pricing_version": "integer",
    "price_ppm": "integer",
    "prompt_tokens": "integer",
    "cached_tokens": "integer",
    "completion_tokens": "integer",
    "cost_nano_usd": "integer",
    "written_off_nano_usd": "integer",
    "minimum_applied": "boolean",
    "outcome": "text",
    "stream": "boolean",
    "offline": "boolean",
    "created_at": "time",
    "compression": "text",
    "original_tokens": "integer",
    "original_cached_tokens": "integer",
    "saved_nano_usd": "integer",
    "compression_nano_usd": "integer",
    "paired_with": "text",
    "event_id": "text",
    "reason": "text",
    "actor": "text",
    "idempotency_key": "text",
}
