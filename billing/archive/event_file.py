"""Usage events as Parquet, every column as the ledger has it: the one module of the room that imports pyarrow."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow
from pyarrow.parquet import ParquetFile, ParquetWriter
from sqlalchemy import Boolean, Integer

from billing.archive.errors import ArchiveDamaged
from billing.store.schema import usage_events
from billing.store.stored_types import UtcDateTime

ROWS_IN_GROUP = 20_000
READ_AT_ONCE = 2000
Event = dict[str, Any]


def _type(column_type: Any) -> pyarrow.DataType:
    if isinstance(column_type, UtcDateTime):
        return pyarrow.timestamp("us", tz="UTC")
    if isinstance(column_type, Boolean):
        return pyarrow.bool_()
    return pyarrow.int64() if isinstance(column_type, Integer) else pyarrow.string()


SCHEMA = pyarrow.schema([(column.name, _type(column.type)) for column in usage_events.columns])


class EventWriter:
    """Into an open file, a group of `ROWS_IN_GROUP` rows at a time; money is 64-bit integers of nano-USD. Close it if
    `end` is not reached: the file is not whole then."""

    def __init__(self, file: BinaryIO) -> None:
        self._writer = ParquetWriter(file, SCHEMA, compression="zstd", write_statistics=True)
        self._waiting: list[Event] = []

    def add(self, events: Sequence[Event]) -> None:
        self._waiting += events
        if len(self._waiting) >= ROWS_IN_GROUP:
            self._write_group()

    def end(self) -> None:
        if self._waiting:
            self._write_group()
        self.close()

    def close(self) -> None:
        self._writer.close()

    def _write_group(self) -> None:
        self._writer.write_table(pyarrow.Table.from_pylist(self._waiting, schema=SCHEMA))
        self._waiting = []


def events_of(path: Path) -> Iterator[Event]:
    """All of a file, in its order, a bounded number at a time. Raises `ArchiveDamaged`."""
    try:
        with ParquetFile(path) as file:
            if file.schema_arrow.names != SCHEMA.names:
                raise ArchiveDamaged(f"{path}: has other columns than usage events")
            for batch in file.iter_batches(batch_size=READ_AT_ONCE):
                yield from batch.to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise ArchiveDamaged(f"{path}: cannot be read: {error}") from error


def found_in(path: Path, event_id: str) -> Event | None:
    """The event of this id. Reads the groups of rows that may have it. Raises `ArchiveDamaged`."""
    place = SCHEMA.names.index("event_id")
    try:
        with ParquetFile(path) as file:
            for number in range(file.num_row_groups):
                known = file.metadata.row_group(number).column(place).statistics
                if known is not None and known.has_min_max and not known.min <= event_id <= known.max:
                    continue
                for row in file.read_row_group(number).to_pylist():
                    if row["event_id"] == event_id:
                        return dict(row)
    except (OSError, pyarrow.ArrowException) as error:
        raise ArchiveDamaged(f"{path}: cannot be read: {error}") from error
    return None
