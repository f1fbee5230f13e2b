"""A chat and the compression of its prompt: charged together or not at all, and proved to belong together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.util import await_only

from billing.books.books import Books as Reader
from billing.books.mispriced import MispricedEvent, WrongFigure
from billing.ledger import ledger_sql
from billing.ledger.recording import Replayed, replay
from billing.ledger.spool import drop_event
from billing.store.database import FakeOutageDatabase, open_database
from billing.usage import UsageEvent, Used
from tests.billing.chats import Chat, Chats, forge

if TYPE_CHECKING:
    from billing.usage import Outcome
    from tests.billing.conftest import Books

CHAT = Chat()
WAITING = text(
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


async def mispriced(books: Books) -> list[MispricedEvent]:
    found = await Reader(books.database).reconcile(books.spool)
    assert found.differences == []
    return list(found.mispriced)


async def by_model(books: Books) -> dict[str, UsageEvent]:
    return {event.model_id: event for event in await books.events()}


async def test_both_are_charged_and_name_each_other(books: Books) -> None:
    chats = await Chats.of(books)
    chat, compression = await chats.settle(CHAT)
    events = await by_model(books)
    mine, its = events["chat"], events["lexical"]
    assert (mine.paired_with, its.paired_with) == (its.event_id, mine.event_id)
    assert (mine.event_id, its.event_id) == (chat.hold.event_id, compression.hold.event_id)
    assert mine.compression_nano_usd == its.cost_nano_usd == CHAT.compression_nano_usd == 400_000
    assert (mine.cost_nano_usd, mine.saved_nano_usd) == (2_050_000, 3_850_000)
    assert (its.saved_nano_usd, its.compression_nano_usd, its.original_tokens) == (0, 0, None)
    assert await books.money(chats.caller) == (2_450_000, 0)
    assert await mispriced(books) == []


@pytest.mark.parametrize("outcome", ["completed", "disconnected", "failed"])
async def test_a_saving_is_proved_whatever_became_of_the_request(books: Books, outcome: Outcome) -> None:
    chats = await Chats.of(books)
    short = Chat(original=9, original_cached=0, sent=3, cached=0, completion=1, compressed=6, outcome=outcome)
    for chat in (CHAT, short, Chat(sent=11_000), Chat(status="holdout", compressed=0), Chat(compressed=0)):
        await chats.settle(chat)
    assert await mispriced(books) == []
    saved = sorted(event.saved_nano_usd for event in await books.events() if event.compression)
    # Under the minimum nothing is saved; and marks of gaps can make a prompt longer than it was.
    assert saved[0] < 0 and saved.count(0) == (0 if outcome == "failed" else 1)


async def test_neither_is_posted_without_the_other_during_an_outage(
    books: Books, outage: FakeOutageDatabase
) -> None:
    chats = await Chats.of(books)
    used = await chats.hold(CHAT)
    outage.is_down = True
    settled = await books.ledger.settle_all(used, outcome="completed", now=books.now)
    outage.is_down = False
    assert [one.status for one in settled] == ["degraded", "degraded"]
    assert await books.spool.count_waiting() == 2
    await books.sweep()
    assert await books.money(chats.caller) == (0, 2 * 10**9), "the spool keeps both holds"
    assert await replay(books.spool, outage) == Replayed(posted=2, known=0, refused=0, waiting=0)
    assert await books.money(chats.caller) == (2_450_000, 0)
    assert await mispriced(books) == []


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 100])
async def test_a_replay_moves_both_at_once_wherever_a_piece_of_the_spool_ends(
    books: Books, outage: FakeOutageDatabase, batch: int
) -> None:
    chats = await Chats.of(books)
    alone = Chat(compressed=0)
    waiting = [await chats.hold(chat) for chat in (alone, CHAT, alone, CHAT, CHAT)]
    outage.is_down = True
    for used in waiting:
        await books.ledger.settle_all(used, outcome="completed", now=books.now)
    outage.is_down = False

    class Watched(FakeOutageDatabase):
        async def write(self, work, *, durable=True):  # type: ignore[no-untyped-def]
            result = await super().write(work, durable=durable)
            if batch > 1:
                assert await mispriced(books) == [], "one of a pair was posted without the other"
            return result

    assert (await replay(books.spool, Watched(books.database), batch=batch)).posted == 8
    assert await mispriced(books) == []
    assert len(await books.events()) == 8


async def test_a_settlement_whose_answer_was_lost_charges_both_once(
    books: Books, outage: FakeOutageDatabase
) -> None:
    chats = await Chats.of(books)
    used = await chats.hold(CHAT)
    outage.loses_answers = True
    await books.ledger.settle_all(used, outcome="completed", now=books.now)
    outage.loses_answers = False
    assert await replay(books.spool, outage) == Replayed(posted=0, known=2, refused=0, waiting=0)
    assert await books.money(chats.caller) == (2_450_000, 0)


async def test_what_the_ledger_refuses_is_set_aside_with_what_belongs_to_it(
    books: Books, outage: FakeOutageDatabase
) -> None:
    chats = await Chats.of(books)
    used = await chats.hold(CHAT)
    outage.is_down = True
    await books.ledger.settle_all(used, outcome="completed", now=books.now)
    outage.is_down = False
    spool = books.spool
    broken = "UPDATE spooled_events SET event = replace(event, '\"lexical\"', '\"gone\"')"
    await spool._database.write(lambda c: c.exec_driver_sql(broken))
    assert (await replay(spool, outage)).refused == 2
    assert await books.money(chats.caller) == (0, 2 * 10**9)


async def set_aside(books: Books, outage: FakeOutageDatabase) -> Sequence[Used]:
    """A chat and its compression, of which the ledger refused the one, with an event that is no JSON beside them."""
    chats = await Chats.of(books)
    used, other = await chats.hold(CHAT), await chats.hold(Chat(compressed=0))
    outage.is_down = True
    for each in (used, other):
        await books.ledger.settle_all(each, outcome="completed", now=books.now)
    outage.is_down = False
    for change in ("replace(event, '\"lexical\"', '\"gone\"')", "'no JSON' WHERE position = 3"):
        await books.spool._database.write(
            lambda c, change=change: c.exec_driver_sql(f"UPDATE spooled_events SET event = {change}")
        )
    await replay(books.spool, outage)
    assert len(await books.spool.refused()) == 3
    mended = "UPDATE spooled_events SET event = replace(event, '\"gone\"', '\"lexical\"')"
    await books.spool._database.write(lambda c: c.exec_driver_sql(mended))
    return used


@pytest.mark.parametrize("which", [0, 1])
async def test_what_was_set_aside_is_tried_again_with_what_belongs_to_it(
    books: Books, outage: FakeOutageDatabase, which: int
) -> None:
    used = await set_aside(books, outage)
    await books.spool.retry(used[which].hold.event_id)
    assert (await replay(books.spool, outage)).posted == 2
    assert await mispriced(books) == []
    assert len(await books.spool.refused()) == 1


@pytest.mark.parametrize("which", [0, 1])
async def test_what_was_set_aside_is_dropped_with_what_belongs_to_it(
    books: Books, outage: FakeOutageDatabase, which: int
) -> None:
    used = await set_aside(books, outage)
    asked, other = await drop_event(
        books.spool, books.database, used[which].hold.event_id, actor="test", now=books.now
    )
    assert (asked.event_id, other.event_id) == (used[which].hold.event_id, used[1 - which].hold.event_id)
    assert len(await books.spool.refused()) == 1
    assert await books.events() == []


async def test_a_crash_while_both_are_set_aside_parts_them_not(
    books: Books, outage: FakeOutageDatabase
) -> None:
    chats = await Chats.of(books)
    used = await chats.hold(CHAT)
    outage.is_down = True
    await books.ledger.settle_all(used, outcome="completed", now=books.now)
    outage.is_down = False
    spool, writes = books.spool, 0
    broken = "UPDATE spooled_events SET event = replace(event, '\"lexical\"', '\"gone\"')"
    await spool._database.write(lambda c: c.exec_driver_sql(broken))
    inner = spool._database

    class Dies(FakeOutageDatabase):
        async def write(self, work, *, durable=True):  # type: ignore[no-untyped-def]
            nonlocal writes
            writes += 1
            if writes > 1:
                raise asyncio.CancelledError
            return await inner.write(work, durable=durable)

    spool._database = Dies(inner)
    with suppress(asyncio.CancelledError):
        await replay(spool, outage)
    spool._database = inner
    assert writes and len({one.refusal for one in [*await spool.waiting(), *await spool.refused()]}) == 1


async def test_one_that_passes_its_limit_is_written_off_and_proved_all_the_same(books: Books) -> None:
    caller = await books.new_caller(spend_limit_nano_usd=2 * 10**6)
    chats = await Chats.of(books, caller)
    # The holds were too small: what the limit has no room for is written off, and savings are of the prices.
    used = await chats.hold(CHAT, amount=1000)
    settled = await books.ledger.settle_all(used, outcome="completed", now=books.now)
    assert sum(one.written_off_nano_usd for one in settled) == 450_000
    assert await books.money(caller) == (2 * 10**6, 0)
    assert await mispriced(books) == []


async def test_an_unmetered_project_has_no_events(books: Books) -> None:
    caller = await books.new_caller(metered=False)
    chats = await Chats.of(books, caller)
    used = await chats.hold(CHAT)
    settled = await books.ledger.settle_all(used, outcome="completed", now=books.now)
    assert [one.status for one in settled] == ["not_applicable"] * 2
    assert await books.events() == []


@pytest.mark.parametrize(
    ("change", "model", "wrong"),
    [
        ("saved_nano_usd = saved_nano_usd + 1", "chat", WrongFigure("saved", 3_850_001, 3_850_000)),
        ("original_tokens = original_tokens + 1", "chat", WrongFigure("saved", 3_850_000, 3_851_000)),
        ("original_cached_tokens = 0", "chat", WrongFigure("saved", 3_850_000, 8_350_000)),
        ("compression_nano_usd = 0", "chat", WrongFigure("compression", 0, 400_000)),
        ("compression_nano_usd = 1", "lexical", WrongFigure("compression", 1, 0)),
        ("saved_nano_usd = 1", "lexical", WrongFigure("saved", 1, 0)),
    ],
)
async def test_a_figure_that_was_changed_is_found(
    books: Books, change: str, model: str, wrong: WrongFigure
) -> None:
    chats = await Chats.of(books)
    await chats.settle(CHAT)
    await forge(books, f"UPDATE usage_events SET {change} WHERE model_id = :model", model=model)
    (found,) = await mispriced(books)
    assert found.event_id == (await by_model(books))[model].event_id
    assert found.wrong == (wrong,) and found.charged == found.due


@pytest.mark.parametrize(
    "change", ["paired_with = NULL", "paired_with = 'another'", "request_id = 'another'"]
)
@pytest.mark.parametrize("model", ["chat", "lexical"])
async def test_events_that_do_not_name_each_other_are_found(books: Books, change: str, model: str) -> None:
    chats = await Chats.of(books)
    await chats.settle(CHAT)
    await forge(books, f"UPDATE usage_events SET {change} WHERE model_id = :model", model=model)
    found = {one.event_id: one.wrong for one in await mispriced(books)}
    events = await by_model(books)
    # Whichever of the two was changed, the other still names it, or says what it cost.
    (other,) = [event for name, event in events.items() if name != model]
    (wrong,) = found[other.event_id]
    assert wrong.figure == "compression" and wrong.due_nano_usd is None


async def test_one_compression_is_not_counted_for_two_chats_of_one_request_id(books: Books) -> None:
    """The id of a request is its caller's, who may send the same one again."""
    chats = await Chats.of(books)
    (first, _), (second, theirs) = await chats.settle(CHAT), await chats.settle(CHAT)
    assert await mispriced(books) == []
    await forge(
        books,
        "UPDATE usage_events SET paired_with = :other WHERE event_id = :chat",
        chat=first.hold.event_id,
        other=theirs.hold.event_id,
    )
    found = {one.event_id for one in await mispriced(books)}
    assert first.hold.event_id in found and second.hold.event_id not in found


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_a_sweep_that_has_one_of_the_two_holds_is_waited_for(books: Books) -> None:
    """Both lock holds first and the workspace after; the other way round one of them would be ended as a deadlock."""
    chats = await Chats.of(books)
    chat, compression = await chats.hold(CHAT)
    closed, go_on = asyncio.Event(), asyncio.Event()

    its = compression.hold.event_id

    def sweep(connection: Connection) -> bool:
        connection.execute(text("SELECT 1 FROM holds WHERE event_id = :id FOR UPDATE"), {"id": its})
        closed.set()
        await_only(go_on.wait())
        # It would wait here for the one that waits for it.
        connection.execute(text("SELECT 1 FROM workspaces FOR UPDATE NOWAIT"))
        return ledger_sql.close_hold(connection, its)

    other = open_database(books.url)
    sweeping = asyncio.create_task(other.write(sweep))
    await closed.wait()
    settling = asyncio.create_task(
        books.ledger.settle_all([chat, compression], outcome="completed", now=books.now)
    )
    async with asyncio.timeout(60):
        while not await other.read(lambda c: c.execute(WAITING).scalar_one()):  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0.005)
    go_on.set()
    assert await sweeping
    assert [one.status for one in await settling] == ["persisted", "persisted"]
    await other.close()
    assert await books.money(chats.caller) == (2_450_000, 0)
