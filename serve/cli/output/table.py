"""Rows as the command line prints them: a table for people, JSON, JSON lines or CSV for programs."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from serve.reports.csv_text import as_csv as as_csv
from serve.reports.csv_text import as_json_lines as as_json_lines

Rows = Sequence[Mapping[str, Any]]


def as_table(columns: Sequence[str], rows: Rows, *, numbers: Sequence[str] = ()) -> str:
    """Columns under their names, those in `numbers` aligned to the right."""
    widths = {name: max(len(name), *(len(_cell(row[name])) for row in rows), 0) for name in columns}

    def line(cells: Mapping[str, str]) -> str:
        padded = (
            cells[name].rjust(width) if name in numbers else cells[name].ljust(width)
            for name, width in widths.items()
        )
        return "  ".join(padded).rstrip()

    head = line({name: name for name in columns})
    return "\n".join([head, *(line({name: _cell(row[name]) for name in columns}) for row in rows)])


def as_json(rows: Rows) -> str:
    return json.dumps([dict(row) for row in rows])


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return str(value).lower() if isinstance(value, bool) else str(value)
