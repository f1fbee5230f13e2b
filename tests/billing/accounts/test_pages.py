"""Lists in pages: each is read from an index, whatever comes before and after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Connection, event

from billing.accounts import account_sql, key_sql
from billing.accounts.account_sql import Page
from billing.adjustments import adjustments
from billing.collections import collection_sql
from billing.webhooks import webhooks

if TYPE_CHECKING:
    from tests.billing.conftest import Books

List = Callable[[Connection, Page], Sequence[Any]]
LISTS: dict[str, List] = {
    "workspaces": account_sql.all_workspaces,
    "projects": lambda connection, page: account_sql.all_projects(connection, None, page),
    "api_keys": lambda connection, page: key_sql.all_keys(connection, None, None, page),
    "collections": lambda connection, page: collection_sql.listed(connection, page=page),
    "webhook_endpoints": lambda connection, page: webhooks.listed(connection, None, page),
    "adjustments": lambda connection, page: adjustments.listed(connection, limit=page.limit),
}
# A few rows are sorted sooner than an index is read: what is asked is whether it can be done without.
NO_SORT = ("seqscan", "sort", "incremental_sort", "bitmapscan", "hashjoin", "mergejoin")


def plans_of(connection: Connection, work: Callable[[Connection], Any]) -> str:
    """How the database reads what `work` asks for in part."""
    asked: list[tuple[str, Any]] = []

    def note(_: Any, cursor: Any, statement: str, parameters: Any, *rest: Any) -> None:
        asked.append((statement, parameters))

    event.listen(connection, "before_cursor_execute", note)
    work(connection)
    event.remove(connection, "before_cursor_execute", note)
    is_sqlite = connection.dialect.name == "sqlite"
    for setting in () if is_sqlite else NO_SORT:
        connection.exec_driver_sql(f"SET LOCAL enable_{setting} = off")
    explain = "EXPLAIN QUERY PLAN" if is_sqlite else "EXPLAIN"
    rows = [
        row
        for statement, parameters in asked
        if "LIMIT" in statement
        for row in connection.exec_driver_sql(f"{explain} {statement}", parameters)
    ]
    return "\n".join(str(row[-1]) for row in rows)


@pytest.mark.parametrize("table", LISTS)
async def test_a_page_of_a_list_is_read_from_an_index_and_nothing_is_sorted(books: Books, table: str) -> None:
    read = LISTS[table]
    after = (await books.accounts.create_workspace("w", now=books.clock.moment)).id
    project = await books.accounts.create_project("w", "p", now=books.clock.moment)
    key, _ = await books.accounts.keys.create("w/p", "k", now=books.clock.moment)
    first = {"workspaces": after, "projects": project.id, "api_keys": key.id}.get(table)
    plan = await books.database.read(lambda c: plans_of(c, lambda c: read(c, Page(3, first))))
    assert f"ix_{table}_created_at" in plan
    assert "TEMP B-TREE" not in plan and "Sort" not in plan


async def test_pages_are_the_whole_list_where_many_were_made_at_one_moment(books: Books) -> None:
    moment = books.clock.moment
    for number in range(7):
        await books.accounts.create_workspace(f"w{number}", now=moment)
    whole = [one.id for one in await books.accounts.list_workspaces()]
    found: list[str] = []
    while part := await books.accounts.list_workspaces(Page(3, found[-1] if found else None)):
        found += [one.id for one in part]
    assert found == whole and len(found) >= 7
