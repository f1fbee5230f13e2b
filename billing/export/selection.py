"""Which rows an export has and where it goes on: as text, a cursor."""

import base64
import binascii
import json
from dataclasses import dataclass
from datetime import UTC, datetime

from billing.errors import BillingError

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
