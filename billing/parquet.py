"""Parquet files of rows: the one module of billing that imports pyarrow.

It does so where a file is read or written: most commands and servers do neither, and pyarrow takes long to load.

Times are of microseconds in UTC, money is 64-bit integers of nano-USD.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from billing.errors import ArchiveDamaged

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

Row = dict[str, Any]
ROWS_IN_GROUP = 20_000
READ_AT_ONCE = 2000


class RowWriter:
    """Into an open file, a group of `ROWS_IN_GROUP` rows at a time. `columns` gives the kind of each column: `text`,
    `integer`, `boolean` or `time`. Close it if `end` is not reached: the file is not whole then."""

    def __init__(self, file: BinaryIO, columns: Mapping[str, str]) -> None:
        import pyarrow
        from pyarrow.parquet import ParquetWriter

        types = {
            "text": pyarrow.string(),
            "integer": pyarrow.int64(),
            "boolean": pyarrow.bool_(),
            "time": pyarrow.timestamp("us", tz="UTC"),
        }
        self._table = pyarrow.Table
        self._schema = pyarrow.schema([(name, types[kind]) for name, kind in columns.items()])
        self._writer = ParquetWriter(file, self._schema, compression="zstd", write_statistics=True)
        self._waiting: list[Row] = []

    def add(self, rows: Sequence[Row]) -> None:
        self._waiting += rows
        if len(self._waiting) >= ROWS_IN_GROUP:
            self._write_group()

    def end(self) -> None:
        if self._waiting:
            self._write_group()
        self.close()

    def close(self) -> None:
        self._writer.close()

    def _write_group(self) -> None:
        self._writer.write_table(self._table.from_pylist(self._waiting, schema=self._schema))
        self._waiting = []


def rows_of(path: Path, names: Sequence[str], *, may_lack: Collection[str] = ()) -> Iterator[Row]:
    """All of a file whose columns are these, in its order, a bounded number at a time. None stands for a column that it
    lacks and `may_lack`. Raises `ArchiveDamaged`."""
    with _opened(path) as file:
        own = file.schema_arrow.names
        if own != [name for name in names if name in own or name not in may_lack]:
            raise ArchiveDamaged(f"{path}: has other columns than usage events")
        for batch in file.iter_batches(batch_size=READ_AT_ONCE):
            yield from (dict.fromkeys(names) | row for row in batch.to_pylist())


def rows_with(path: Path, column: str, value: str) -> Iterator[Row]:
    """The rows with this value. Reads the groups of rows that may have it. Raises `ArchiveDamaged`."""
    from pyarrow.compute import equal

    with _opened(path) as file:
        place = file.schema_arrow.names.index(column)
        for number in range(file.num_row_groups):
            known = file.metadata.row_group(number).column(place).statistics
            if known is not None and known.has_min_max and not known.min <= value <= known.max:
                continue
            group = file.read_row_group(number)
            yield from group.filter(equal(group[column], value)).to_pylist()


@contextmanager
def _opened(path: Path) -> Iterator[ParquetFile]:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            yield file
    except (OSError, ArrowException) as error:
        raise ArchiveDamaged(f"{path}: cannot be read: {error}") from error
