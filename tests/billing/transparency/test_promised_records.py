"""Records as replies promise them: the same text as that of the leaf which the ledger then has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select

from billing.ledger.recording import Replayed, replay
from billing.store.schema import usage_events
from billing.transparency.leaves import leaf
from billing.usage import PromptCompression, Used
from tests.billing.chats import Chat, Chats

if TYPE_CHECKING:
    from billing.store.database import FakeOutageDatabase
    from billing.usage import Outcome
    from tests.billing.conftest import Books

TOKENS = "ab" * 32
RECEIPT = '{"tokens":7,"text":"left out of the ledger"}'


async def held(chats: Chats, chat: Chat, *, receipt: str | None = None) -> list[Used]:
    return [
        replace(one, figures=replace(one.figures, tokens_sha256=TOKENS, receipt=receipt))
        for one in await chats.hold(chat)
    ]


async def records(books: Books) -> dict[str, str]:
    rows = await books.database.read(lambda c: c.execute(select(usage_events)).all())
    return {row.event_id: leaf(row._mapping).record for row in rows}


@pytest.mark.parametrize("spooled", [False, True])
@pytest.mark.parametrize("outcome", ["completed", "disconnected", "failed"])
@pytest.mark.parametrize("status", ["applied", "skipped", "holdout", None])
async def test_a_promise_is_what_the_ledger_then_has(
    books: Books,
    outage: FakeOutageDatabase,
    outcome: Outcome,
    status: PromptCompression | None,
    spooled: bool,
) -> None:
    chats, compressed = await Chats.of(books), 8000 if status == "applied" else 0
    promised = {}
    for receipt, conversation, sent in ((None, None, 3000), (RECEIPT, "c" * 32, 11_000)):
        chat = Chat(
            sent=sent, compressed=compressed, status=status, conversation=conversation, outcome=outcome
        )
        used = await held(chats, chat, receipt=receipt)
        found = books.ledger.records(used, outcome=outcome, now=books.now)
        promised |= {one.hold.event_id: record for one, record in zip(used, found, strict=True)}
        outage.is_down = spooled
        (settlement, *_) = await books.ledger.settle_all(used, outcome=outcome, now=books.now)
        assert settlement.status == ("degraded" if spooled else "persisted")
        outage.is_down = False
    if spooled:
        waiting = len(promised)
        assert await replay(books.spool, outage) == Replayed(waiting, known=0, refused=0, waiting=0)
    assert await records(books) == promised
    assert all(f'"tokens_sha256":"{TOKENS}"' in record for record in promised.values())


async def test_a_charge_that_is_written_off_and_a_price_list_of_another_number_change_no_record(
    books: Books,
) -> None:
    """What the posting alone says is no part of a promise."""
    chats = await Chats.of(books)
    used = await held(chats, replace(Chat(compressed=0), completion=10**6))
    (before,) = books.ledger.records(used, outcome="completed", now=books.now)
    listed = replace(used[0], hold=replace(used[0].hold, pricing_version=1000))
    assert books.ledger.records([listed], outcome="completed", now=books.now) == [before]
    await books.ledger.settle_all(used, outcome="completed", now=books.now)
    assert list((await records(books)).values()) == [before]
