"""Rows of an export: their columns, which of them were asked for, and the cursor where it goes on."""

import base64
import binascii
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from billing.errors import BillingError

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


MAX_CURSOR_CHARS = 1024
_FIELDS = 7


class InvalidCursor(BillingError, ValueError):
    """The text is no cursor of an export."""

    def __init__(self) -> None:
        super().__init__("cursor: not one that an export gave")


@dataclass(frozen=True, slots=True)
class Place:
    """After this row. Rows are in the order of workspaces' ids, then of time, then of their own ids."""

    workspace_id: str
    at: datetime
    id: str


@dataclass(frozen=True, slots=True)
class Selection:
    """Rows whose `at` is from `since` to before `until`, of one workspace or project or of all; those after `after`."""

    since: datetime | None
    until: datetime
    workspace_id: str | None = None
    project_id: str | None = None
    after: Place | None = None

    @property
    def cursor(self) -> str:
        place = self.after
        fields = (
            None if self.since is None else self.since.isoformat(),
            self.until.isoformat(),
            self.workspace_id,
            self.project_id,
            *((None, None, None) if place is None else (place.workspace_id, place.at.isoformat(), place.id)),
        )
        return base64.urlsafe_b64encode(json.dumps(fields, separators=(",", ":")).encode()).decode()


def selection_of(cursor: str) -> Selection:
    """What is left of the export that gave it. Raises `InvalidCursor`."""
    try:
        if len(cursor) > MAX_CURSOR_CHARS:
            raise InvalidCursor
        fields = json.loads(base64.urlsafe_b64decode(cursor.encode("ascii")))
        if len(fields) != _FIELDS or not all(isinstance(one, str | None) for one in fields):
            raise InvalidCursor
        since, until, workspace_id, project_id, *place = fields
        after = Place(place[0], _moment(place[1]), place[2]) if all(place) else None
        begin = None if since is None else _moment(since)
        return Selection(begin, _moment(until), workspace_id, project_id, after)
    except (ValueError, TypeError, OverflowError, binascii.Error, RecursionError) as error:
        raise InvalidCursor from error


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError("a cursor's times have a zone")
    return found.astimezone(UTC)
