"""Statements that every request runs: on SQLite they are compiled once for the life of the process, since
SQLAlchemy's own work for an execution costs ten times what SQLite needs for it.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection, Delete, Insert, Table, Update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError, StatementError
from sqlalchemy.sql.compiler import SQLCompiler

Process = Callable[[Any], Any]
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class _Compiled:
    """SQL with `?` for its parameters: their names in order, with what turns each into the driver's type."""

    sql: str
    parameters: tuple[tuple[str, Process | None], ...]
    constants: Mapping[str, Any]

    def arguments(self, given: Mapping[str, Any]) -> tuple[Any, ...]:
        values = {**self.constants, **given}
        return tuple(
            values[name] if process is None else process(values[name]) for name, process in self.parameters
        )


class PrecompiledStatement:
    """An insert, update or delete whose named parameters are all given at each execution.

    Its errors are SQLAlchemy's, as `Connection.execute` raises them.
    """

    def __init__(self, statement: Insert | Update | Delete) -> None:
        self._statement = statement
        self._on_sqlite: _Compiled | None = None

    def count(self, connection: Connection, parameters: Mapping[str, Any]) -> int:
        """Execute it; returns how many rows it made, changed or deleted."""
        if connection.dialect.name != "sqlite":
            return connection.execute(self._statement, parameters).rowcount
        return self._execute(connection, parameters).rowcount

    def returned(self, connection: Connection, parameters: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        """Execute it; returns the rows of its RETURNING clause, as the driver has them."""
        if connection.dialect.name != "sqlite":
            return connection.execute(self._statement, parameters).all()
        return self._execute(connection, parameters).fetchall()

    def _execute(self, connection: Connection, parameters: Mapping[str, Any]) -> sqlite3.Cursor:
        if self._on_sqlite is None:
            self._on_sqlite = _compile(self._statement, connection.dialect)
        compiled = self._on_sqlite
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        try:
            return driver.execute(compiled.sql, compiled.arguments(parameters))
        except sqlite3.Error as error:
            raise DBAPIError.instance(compiled.sql, None, error, sqlite3.Error) from error
        except (OverflowError, UnicodeError):
            # Of a value that SQLite cannot hold: SQLAlchemy passes these on.
            raise
        except Exception as error:
            raise StatementError(str(error), compiled.sql, None, error) from error


def _compile(statement: Insert | Update | Delete, dialect: Dialect) -> _Compiled:
    compiled = statement.compile(dialect=dialect)
    assert isinstance(compiled, SQLCompiler)
    names = compiled.positiontup or []
    kinds = {name: compiled.binds[name].type.dialect_impl(dialect) for name in names}
    given_at_execution = {name for name in names if compiled.binds[name].required}
    return _Compiled(
        sql=str(compiled),
        parameters=tuple((name, kinds[name].bind_processor(dialect)) for name in names),
        constants={name: compiled.binds[name].value for name in names if name not in given_at_execution},
    )


AT_ONCE = 500


def in_parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """As many at once as a statement may bind parameters for, one each."""
    return (rows[start : start + AT_ONCE] for start in range(0, len(rows), AT_ONCE))


DIALECTS = ("sqlite", "postgresql")


def inserting(dialect: str, table: Table) -> Any:
    """An insert that may say, by `on_conflict_do_…`, what becomes of a row that is there already."""
    return (sqlite if dialect == "sqlite" else postgresql).insert(table)


def replacing(connection: Connection, table: Table, column: str) -> Insert:
    """An insert into the table which sets this column of a row that is there already."""
    new = inserting(connection.dialect.name, table)
    keys = [key.name for key in table.primary_key]
    made: Insert = new.on_conflict_do_update(index_elements=keys, set_={column: new.excluded[column]})
    return made
