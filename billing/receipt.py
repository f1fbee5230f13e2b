"""The receipt of a compression as the ledger keeps it: codes, counts and offsets, and nothing that a customer wrote."""

import json
from typing import Any

TEXT = "text"


def without_text(receipt: str | None) -> str | None:
    """The receipt without the excerpts of its flags' examples; None if it is not JSON."""
    if receipt is None or f'"{TEXT}"' not in receipt:
        return receipt
    try:
        fields = json.loads(receipt)
    except (ValueError, RecursionError):
        # It may hold anything.
        return None
    return json.dumps(_scrubbed(fields), separators=(",", ":"), ensure_ascii=False)


def _scrubbed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _scrubbed(part) for name, part in value.items() if name != TEXT}
    if isinstance(value, list):
        return [_scrubbed(part) for part in value]
    return value
