"""`billing.books.reconciliation`: edited balances are found out, and events are read back as they were written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

if TYPE_CHECKING:
    from tests.billing.conftest import Books


@pytest.mark.parametrize("figure", ["posted", "held"])
async def test_a_balance_that_was_edited_is_found(books: Books, figure: str) -> None:
    caller = await books.new_caller()
    await books.settle(await books.hold(caller), 400)
    await books.hold(caller, 1000)
    assert await books.differences() == []
    edit = text(f"UPDATE workspaces SET {figure}_nano_usd = {figure}_nano_usd + 1 WHERE id = :id")
    await books.database.write(lambda c: c.execute(edit, {"id": caller.workspace_id}))
    (found,) = await books.differences()
    assert (found.workspace_id, found.figure) == (caller.workspace_id, figure)
    assert found.stored_nano_usd - found.rebuilt_nano_usd == 1
