"""Rows as CSV or as lines of JSON, for other programs."""

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]


_FORMULA = ("=", "+", "-", "@", "\t", "\r")


_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")


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
