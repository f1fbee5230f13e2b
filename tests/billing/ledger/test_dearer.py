"""Chats that their compression made dearer: credited as they are charged, once, whatever happens in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from billing.adjustments.adjustment import Adjustment
from billing.adjustments.adjustments import Adjustments
from billing.books.books import Books as Reader
from billing.ledger.adjustment_rows import DEARER
from billing.ledger.recording import replay
from billing.usage import UsageEvent
from tests.billing.chats import Chat, Chats

if TYPE_CHECKING:
    from billing.store.database import FakeOutageDatabase
    from tests.billing.conftest import Books

# Marks of gaps can make a prompt longer than it was.
LONGER = Chat(original=3000, original_cached=0, sent=3500, cached=0, compressed=0)
UNPAID = Chat(original=3100, original_cached=0, sent=3000, cached=0)


async def credits(books: Books) -> list[Adjustment]:
    return await Adjustments(books.database, actor="test").listed()


async def assert_clean(books: Books) -> None:
    assert (await Reader(books.database).reconcile(books.spool)).is_clean


async def chat_of(books: Books) -> UsageEvent:
    return next(event for event in await books.events() if event.model_id == "chat")


async def test_a_chat_of_which_more_was_sent_is_credited_the_difference(books: Books) -> None:
    chats = await Chats.of(books)
    await chats.settle(LONGER)
    (made,), event = await credits(books), await chat_of(books)
    assert (made.kind, made.nano_usd, made.reason) == ("refund", -500_000, DEARER)
    assert (made.event_id, made.project_id, made.month) == (event.event_id, event.project_id, event.month)
    statement = await Reader(books.database).statement(chats.caller.workspace_id, made.month)
    assert statement.adjustments == (made,)
    workspace = await books.accounts.find_workspace(chats.caller.workspace_id)
    assert workspace.posted_nano_usd - workspace.credited_nano_usd == LONGER.cost_nano_usd - 500_000
    await assert_clean(books)


async def test_a_charge_for_a_compression_that_saved_less_is_credited_too(books: Books) -> None:
    await (await Chats.of(books)).settle(UNPAID)
    (made,) = await credits(books)
    assert made.nano_usd == -(UNPAID.compression_nano_usd - UNPAID.saved_nano_usd) == -300_000
    await assert_clean(books)


@pytest.mark.parametrize(
    "chat",
    [
        Chat(),
        Chat(compressed=0),
        Chat(status=None, compressed=0),
        Chat(compressed=0, sent=10_000, cached=5000),
    ],
)
async def test_a_chat_that_is_not_dearer_is_credited_nothing(books: Books, chat: Chat) -> None:
    await (await Chats.of(books)).settle(chat)
    assert await credits(books) == []


async def test_a_spooled_chat_is_credited_when_it_is_replayed_and_once(
    books: Books, outage: FakeOutageDatabase
) -> None:
    chats = await Chats.of(books)
    for chat in (LONGER, UNPAID):
        used = await chats.hold(chat)
        outage.is_down = True
        await books.ledger.settle_all(used, outcome="completed", now=books.now)
        outage.is_down = False
    assert await credits(books) == []
    outage.loses_answers = True
    await replay(books.spool, outage)
    outage.loses_answers = False
    await replay(books.spool, outage)
    assert sorted(made.nano_usd for made in await credits(books)) == [-500_000, -300_000]
    await assert_clean(books)


async def test_a_settlement_whose_answer_was_lost_credits_once(
    books: Books, outage: FakeOutageDatabase
) -> None:
    chats = await Chats.of(books)
    used = await chats.hold(LONGER)
    outage.loses_answers = True
    (settled,) = await books.ledger.settle_all(used, outcome="completed", now=books.now)
    outage.loses_answers = False
    assert settled.status == "degraded"
    assert (await replay(books.spool, outage)).known == 1
    assert [made.nano_usd for made in await credits(books)] == [-500_000]
    await assert_clean(books)


async def test_what_is_credited_cannot_be_refunded_again(books: Books) -> None:
    await (await Chats.of(books)).settle(LONGER)
    event = await chat_of(books)
    rest = await Adjustments(books.database, actor="test").refund(
        event.event_id, reason="an outage", idempotency_key="k"
    )
    assert rest.nano_usd == -(event.cost_nano_usd - 500_000)
    await assert_clean(books)
