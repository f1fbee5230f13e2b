"""Rows as Parquet, in groups of a bounded number: the one module here that imports pyarrow."""

import io
from collections.abc import Sequence

import pyarrow
from pyarrow.parquet import ParquetWriter

from billing.export.columns import COLUMNS, Kind, Row

ROWS_IN_GROUP = 20_000
_TYPES: dict[Kind, pyarrow.DataType] = {
    "text": pyarrow.string(),
    "integer": pyarrow.int64(),
    "boolean": pyarrow.bool_(),
    "time": pyarrow.timestamp("us", tz="UTC"),
}
SCHEMA = pyarrow.schema([(name, _TYPES[kind]) for name, kind in COLUMNS.items()])


class Parquet:
    """Times are of microseconds in UTC, money is 64-bit integers of nano-USD."""

    def __init__(self) -> None:
        self._sink = _Drained()
        self._writer = ParquetWriter(self._sink, SCHEMA, compression="zstd")
        self._waiting: list[Row] = []

    def rows(self, rows: Sequence[Row]) -> bytes:
        self._waiting += rows
        if len(self._waiting) >= ROWS_IN_GROUP:
            self._write_group()
        return self._sink.taken()

    def end(self) -> bytes:
        if self._waiting:
            self._write_group()
        self._writer.close()
        return self._sink.taken()

    def _write_group(self) -> None:
        self._writer.write_table(pyarrow.Table.from_pylist(self._waiting, schema=SCHEMA))
        self._waiting = []


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
