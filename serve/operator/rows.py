"""Rows as text: a table for people, JSON, JSON lines or CSV for programs."""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")


def as_json(rows: Rows) -> str:
    return json.dumps([dict(row) for row in rows])


def as_json_lines(rows: Rows) -> str:
    return "".join(json.dumps(dict(row)) + "\n" for row in rows)


def as_csv(columns: Sequence[str], rows: Rows, *, header: bool = True) -> str:
    """With a header, even if there are no rows; without one where the rows go on from others."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows({name: _harmless(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _harmless(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula gets an apostrophe in front; numbers do not."""
    if isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


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


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict):
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if isinstance(value, list):
        return ",".join(map(str, value)) or "[]"
    return str(value).lower() if isinstance(value, bool) else str(value)
