"""`billing.books.reconciliation`: edited balances are found out, and events are read back as they were written."""

from __future__ import annotations

from datetime import timedelta
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
    assert await books.ledger.differences() == []
    edit = text(f"UPDATE workspaces SET {figure}_nano_usd = {figure}_nano_usd + 1 WHERE id = :id")
    await books.database.write(lambda c: c.execute(edit, {"id": caller.workspace_id}))
    (found,) = await books.ledger.differences()
    assert (found.workspace_id, found.figure) == (caller.workspace_id, figure)
    assert found.stored_nano_usd - found.rebuilt_nano_usd == 1


async def test_events_are_read_newest_first_by_workspace_and_project(books: Books) -> None:
    one, two = await books.new_caller(), await books.new_caller()
    settled = []
    for second, caller in enumerate((one, two, one)):
        hold = await books.hold(caller)
        await books.settle(hold, 400, now=books.now + timedelta(seconds=second))
        settled.append(hold.event_id)
    ids = [event.event_id for event in await books.ledger.recent_events()]
    assert ids == settled[::-1]
    events = await books.ledger.recent_events(workspace_id=one.workspace_id, limit=1)
    assert [event.event_id for event in events] == [settled[2]]
    (event,) = await books.ledger.recent_events(project_id=two.project_id)
    assert (event.key_id, event.cost_nano_usd, event.stream) == (two.key_id, 400, True)
    assert (event.created_at, event.settled_at) == (books.now, books.now + timedelta(seconds=1))
