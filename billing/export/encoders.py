"""Rows as the bytes of a file, piece by piece: JSON lines, CSV, Parquet."""

import csv
import io
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from billing.export.rows import COLUMNS, Row

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
        # Imported here: pyarrow takes longer to load than most exports take.
        from billing.parquet import RowWriter

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
