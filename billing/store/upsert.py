"""Inserts that put a new value in the place of what a row has."""

from typing import Any

from sqlalchemy import Connection, Insert, Table
from sqlalchemy.dialects import postgresql, sqlite


def replacing(connection: Connection, table: Table, column: str) -> Insert:
    """An insert into the table which sets this column of a row that is there already."""
    inserting: Any = (sqlite if connection.dialect.name == "sqlite" else postgresql).insert(table)
    keys = [key.name for key in table.primary_key]
    made: Insert = inserting.on_conflict_do_update(
        index_elements=keys, set_={column: inserting.excluded[column]}
    )
    return made
