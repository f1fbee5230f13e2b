"""Days and months of stored times, in UTC, as each database says them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from sqlalchemy import Column, ColumnElement, Connection, func

_MONTH = re.compile(r"(\d{4})-(0[1-9]|1[0-2])")
_CHARS = {"month": 7, "day": 10}
_PATTERNS = {"month": "YYYY-MM", "day": "YYYY-MM-DD"}


def calendar(connection: Connection, column: Column[datetime], span: str) -> ColumnElement[str]:
    """The `day` (`2026-11-20`) or the `month` (`2026-11`) that a stored time falls in."""
    if connection.dialect.name == "sqlite":
        # Stored as text, in UTC.
        return func.substr(column, 1, _CHARS[span])
    return func.to_char(func.timezone("UTC", column), _PATTERNS[span])


def month_bounds(month: str) -> tuple[datetime, datetime]:
    """The first moment of a month such as `2026-11`, and that of the next. Raises `ValueError`."""
    match = _MONTH.fullmatch(month)
    if match is None or not 1 <= int(match[1]) < 9999:
        raise ValueError(f"{month!r} is no month such as 2026-11")
    year, number = int(match[1]), int(match[2])
    following = (year + 1, 1) if number == 12 else (year, number + 1)
    return datetime(year, number, 1, tzinfo=UTC), datetime(*following, 1, tzinfo=UTC)
