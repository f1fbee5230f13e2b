"""Lists in pages: a cursor is the id of the last row that was seen, and no page is longer than `MOST`."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Query

from billing.accounts.account_sql import Page

MOST = 500
Cursor = Annotated[
    str | None, Query(max_length=64, description="`next` of the page before; none: the first.")
]
Limit = Annotated[int, Query(ge=1, le=MOST, description="Rows of a page.")]
LIMIT = 100


def asked(cursor: str | None, limit: int) -> Page:
    """What to read for a page: one row more than it shows, which says that there is more."""
    return Page(limit + 1, cursor)


def page(rows: Sequence[dict[str, Any]], limit: int) -> dict[str, Any]:
    """`data`, and `next` where there is more."""
    shown = list(rows[:limit])
    return {"data": shown, "next": shown[-1]["id"] if len(rows) > limit else None}
