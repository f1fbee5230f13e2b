"""Files of archived months: those of an older release are read, and no others that lack a column."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pytest
from pyarrow.parquet import write_table

from billing.archive.month_files import COLUMNS, events_of
from billing.errors import ArchiveDamaged


def file_without(column: str, folder: Path) -> Path:
    path = folder / "usage.parquet"
    write_table(pyarrow.table({name: ["x"] for name in COLUMNS if name != column}), path)
    return path


def test_a_column_that_came_later_is_none_in_older_files(tmp_path: Path) -> None:
    (event,) = events_of(file_without("tokens_sha256", tmp_path))
    assert list(event) == list(COLUMNS)
    assert [name for name, value in event.items() if value is None] == ["tokens_sha256"]


@pytest.mark.parametrize("column", ["cost_nano_usd", "route"])
def test_a_file_that_lacks_another_column_is_damaged(tmp_path: Path, column: str) -> None:
    with pytest.raises(ArchiveDamaged, match="other columns"):
        list(events_of(file_without(column, tmp_path)))
