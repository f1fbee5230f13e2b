"""Checks of compressed chats on each database: written once, read in their order, deleted when they are old."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from billing.caller import Caller
from billing.errors import LedgerUnavailable
from billing.preservation.checks import KEPT_DAYS, PreservationCheck, PreservationStore
from billing.store.database import FakeOutageDatabase
from billing.usage import mint_event_id
from tests.billing.conftest import NOW

if TYPE_CHECKING:
    from tests.billing.conftest import Books


def check_of(caller: Caller, moment: datetime = NOW, **fields: Any) -> PreservationCheck:
    """One that a test needs nothing else of."""
    made = PreservationCheck(
        event_id=mint_event_id(moment),
        request_id="r",
        workspace_id=caller.workspace_id,
        project_id=caller.project_id,
        model_id="model-a",
        compression_model_id="pith-extract",
        settled_at=moment,
        kinds="text",
        target_ratio=0.3,
        keep=None,
        original_tokens=900,
        sent_tokens=300,
        scored_tokens=40,
        agreeing_tokens=38,
        nats_per_token=0.125,
    )
    return replace(made, **fields)


async def test_a_check_is_read_as_it_was_written(books: Books) -> None:
    store, caller = PreservationStore(books.database), await books.new_caller()
    check = check_of(caller, keep=0.95, target_ratio=None, kinds="text+tool_json", nats_per_token=-0.25)
    assert await store.record(check)
    (found,) = await store.read()
    assert found == check and found.agreement == 0.95


async def test_a_chat_has_one_check_however_often_it_is_written(books: Books) -> None:
    store, caller = PreservationStore(books.database), await books.new_caller()
    check = check_of(caller)
    assert await store.record(check)
    assert not await store.record(replace(check, nats_per_token=9.0))
    assert await store.read() == [check]


async def test_the_newest_of_whom_is_asked_for_are_read_the_oldest_first(books: Books) -> None:
    store, caller, other = (
        PreservationStore(books.database),
        await books.new_caller(),
        await books.new_caller(),
    )
    made = [check_of(caller, NOW + timedelta(minutes=minute)) for minute in range(4)]
    for check in (*reversed(made), check_of(other), check_of(caller, NOW, model_id="model-b")):
        await store.record(check)
    mine = {"workspace_id": caller.workspace_id, "project_id": caller.project_id, "model_id": "model-a"}
    assert await store.read(**mine) == made
    assert await store.read(**mine, limit=2) == made[2:]
    some = await store.read(**mine, since=made[1].settled_at, until=made[3].settled_at)
    assert some == made[1:3]
    assert len(await store.read()) == 6


async def test_old_checks_are_deleted_however_many_there_are(books: Books) -> None:
    store, caller = PreservationStore(books.database), await books.new_caller()
    old, kept = NOW - timedelta(days=KEPT_DAYS, seconds=1), check_of(caller, NOW - timedelta(days=KEPT_DAYS))
    await store.record(kept)
    for _ in range(3):
        await store.record(check_of(caller, old))
    await store.delete_old(NOW, at_once=2)
    assert await store.read() == [kept]


async def test_while_the_ledger_is_away_nothing_is_written_and_it_is_said(books: Books) -> None:
    outage = FakeOutageDatabase(books.database)
    outage.is_down = True
    check = check_of(await books.new_caller())
    with pytest.raises(LedgerUnavailable):
        await PreservationStore(outage).record(check)
    assert await PreservationStore(books.database).read() == []
