"""The database's clock, which decides what several servers must agree on: when a lease ends, and which month it is.

Both names are functions of the database: on PostgreSQL a migration makes them, on SQLite, whose clock is the machine's,
each connection installs them. Tests put other clocks in their place.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from sqlite3 import Connection as SqliteConnection

from sqlalchemy import ColumnElement, Double, String, func

from billing.usage import month_of

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
