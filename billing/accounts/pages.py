"""A part of a list that is in the order of when its rows were made: only that part is read."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, Table, literal, select, tuple_

from billing.errors import UnknownAccount


@dataclass(frozen=True, slots=True)
class Page:
    """So many rows after the one with this id; None: from the first."""

    limit: int
    after: str | None = None


def paged(connection: Connection, rows: Select[Any], table: Table, page: Page | None) -> Select[Any]:
    """`rows` of `table`, oldest first; without a page all of them. Raises `UnknownAccount` where there is no row of the
    page's id."""
    order = (table.c.created_at, table.c.id)
    rows = rows.order_by(*order)
    if page is None:
        return rows
    if page.after is not None:
        place = None
        # NUL and lone surrogates name nothing; each database would refuse them in its own way.
        if page.after.isprintable():
            place = connection.execute(select(*order).where(table.c.id == page.after)).one_or_none()
        if place is None:
            raise UnknownAccount("row of this list", page.after)
        # Row values, which an index on both is entered by.
        there = (literal(value, column.type) for value, column in zip(place, order, strict=True))
        rows = rows.where(tuple_(*order) > tuple_(*there))
    return rows.limit(page.limit)
