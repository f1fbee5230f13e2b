"""Rows of an export: their columns, which were asked for, the cursor to go on from, and their bytes in each format."""

import base64
import binascii
import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from billing.errors import BillingError
from billing.parquet import RowWriter

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
    "person": "text",
    "tags": "text",
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
    """The rest of the export that gave the cursor. Raises `InvalidCursor`."""
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


Format = Literal["jsonl", "csv", "parquet"]
# What a spreadsheet would take for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Encoder(Protocol):
    """One file. Each call returns the bytes that come next; none may be empty of rows and still be right."""

    def rows(self, rows: Sequence[Row]) -> bytes: ...

    def end(self) -> bytes: ...


class JsonLines:
    """A line for each row; times in ISO 8601, UTC."""

    def rows(self, rows: Sequence[Row]) -> bytes:
        return "".join(json.dumps(_with_texts(row), separators=(",", ":")) + "\n" for row in rows).encode()

    def end(self) -> bytes:
        return b""


class Csv:
    """With a header. Text that a spreadsheet would run as a formula has an apostrophe in front of it."""

    def __init__(self) -> None:
        self._text = io.StringIO(newline="")
        # RFC 4180's line ends: a text with either character is quoted then.
        self._writer = csv.writer(self._text, lineterminator="\r\n")
        self._writer.writerow(COLUMNS)

    def rows(self, rows: Sequence[Row]) -> bytes:
        for row in rows:
            self._writer.writerow([_cell(value) for value in _with_texts(row).values()])
        return self._taken()

    def end(self) -> bytes:
        return self._taken()

    def _taken(self) -> bytes:
        taken = self._text.getvalue()
        self._text.seek(0)
        self._text.truncate()
        return taken.encode()


class Parquet:
    """In groups of rows; see `billing.parquet`."""

    def __init__(self) -> None:
        self._sink = _Drained()
        self._writer = RowWriter(self._sink, COLUMNS)  # type: ignore[arg-type]

    def rows(self, rows: Sequence[Row]) -> bytes:
        self._writer.add(rows)
        return self._sink.taken()

    def end(self) -> bytes:
        self._writer.end()
        return self._sink.taken()


class _Drained(io.RawIOBase):
    """A file that gives away what was written to it, and remembers only how much that was."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []
        self._written = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._written

    def write(self, piece: bytes) -> int:  # type: ignore[override]
        self._pieces.append(bytes(piece))
        self._written += len(piece)
        return len(piece)

    def taken(self) -> bytes:
        taken, self._pieces = b"".join(self._pieces), []
        return taken


def encoder_of(format: Format) -> Encoder:
    encoders: dict[Format, type[Encoder]] = {"jsonl": JsonLines, "csv": Csv, "parquet": Parquet}
    return encoders[format]()


def _with_texts(row: Row) -> dict[str, Any]:
    return {
        name: value.astimezone(UTC).isoformat(timespec="microseconds")
        if isinstance(value, datetime)
        else value
        for name, value in row.items()
    }


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
