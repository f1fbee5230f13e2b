"""Stored times in UTC, periods of them, and the database's clock, which decides what several servers must agree on."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from sqlite3 import Connection as SqliteConnection
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Double, Select, String, func

from billing.usage import month_of

MONTH = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])")
_CHARS = {"month": 7, "day": 10}
_PATTERNS = {"month": "YYYY-MM", "day": "YYYY-MM-DD"}


def calendar(connection: Connection, column: Column[datetime], span: str) -> ColumnElement[str]:
    """The `day` (`2026-11-20`) or the `month` (`2026-11`) that a stored time falls in."""
    if connection.dialect.name == "sqlite":
        # Stored as text, in UTC.
        return func.substr(column, 1, _CHARS[span])
    return func.to_char(func.timezone("UTC", column), _PATTERNS[span])


def within(
    statement: Select[Any], column: Column[datetime], since: datetime | None, until: datetime | None
) -> Select[Any]:
    """Only the rows whose time is from `since` to before `until`; None leaves that end open."""
    if since is not None:
        statement = statement.where(column >= since)
    return statement if until is None else statement.where(column < until)


def month_bounds(month: str) -> tuple[datetime, datetime]:
    """The first moment of a month such as `2026-11`, and that of the next. Raises `ValueError`."""
    match = MONTH.fullmatch(month)
    if match is None or not 1 <= int(match[1]) < 9999:
        raise ValueError(f"{month!r} is not a month, such as 2026-11")
    year, number = int(match[1]), int(match[2])
    following = (year + 1, 1) if number == 12 else (year, number + 1)
    return datetime(year, number, 1, tzinfo=UTC), datetime(*following, 1, tzinfo=UTC)


DAY_S = 86_400


def now_s() -> ColumnElement[float]:
    """Seconds since 1970."""
    return func.pith_now(type_=Double)


def this_month() -> ColumnElement[str]:
    """The calendar month in UTC, such as `2026-11`."""
    return func.pith_month(type_=String)


def install_clock(connection: SqliteConnection, clock: Callable[[], float]) -> None:
    """Gives a connection of SQLite both functions. `clock` returns the seconds since 1970."""
    connection.create_function("pith_now", 0, clock)
    # Each request asks twice.
    of_day = lru_cache(maxsize=2)(_month_of_day)
    connection.create_function("pith_month", 0, lambda: of_day(clock() // DAY_S))


def _month_of_day(day: float) -> str:
    return month_of(datetime.fromtimestamp(day * DAY_S, UTC))
