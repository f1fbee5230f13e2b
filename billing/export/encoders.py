"""Rows as the bytes of a file, piece by piece: JSON lines, CSV, Parquet."""

import csv
import io
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from billing.export.columns import COLUMNS, Row

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


def encoder_of(format: Format) -> Encoder:
    if format == "parquet":
        # Imported here: pyarrow takes longer to load than most exports take.
        from billing.export.parquet import Parquet

        return Parquet()
    return JsonLines() if format == "jsonl" else Csv()


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
