"""Measured savings: which events are compared, how they are added up, and that either database says the same."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import insert

from billing.adjustments.adjustments import Adjustments
from billing.books.books import Books as Reader
from billing.books.compressions import Comparison, comparisons
from billing.books.saving import Side, saving_between
from billing.errors import UnknownAccount
from billing.store.schema import usage_events
from tests.billing.chats import Chat, Chats
from tests.billing.conftest import event_row

if TYPE_CHECKING:
    from billing.caller import Caller
    from tests.billing.conftest import Books

OCTOBER = datetime(2026, 10, 31, 12, tzinfo=UTC)
NOVEMBER = datetime(2026, 11, 5, 12, tzinfo=UTC)


def row(caller: Caller, conversation: str | None, status: str | None, **fields: Any) -> dict[str, Any]:
    """An event as the ledger has it; what a test does not name is of no consequence."""
    told = {"compression_nano_usd": 0, "original_tokens": None, "conversation": conversation, **fields}
    return event_row(caller, told.pop("at", NOVEMBER), compression=status, **told)


async def add(books: Books, *rows: dict[str, Any]) -> None:
    await books.database.write(lambda c: c.execute(insert(usage_events), list(rows)))


async def compared(books: Books, *by: Any, **period: Any) -> list[Comparison]:
    return await books.database.read(partial(comparisons, by=by, **period))


async def test_a_month_is_added_up_by_conversation(books: Books) -> None:
    caller, rng, rows = await books.new_caller(), random.Random(3), []
    tokens: dict[tuple[bool, str], list[int]] = {}
    for number in range(200):
        held_out, name = number % 3 == 0, f"{number:032x}"
        for _ in range(rng.randint(1, 4)):
            original, spent = rng.randint(100, 10**6), 0 if held_out else rng.randint(0, 10**6)
            # Past 64 bits when it is squared.
            cost = original * (10**6 if held_out else 7 * 10**5) + rng.randint(0, 10**9)
            status = "holdout" if held_out else rng.choice(["applied", "skipped", "failed"])
            sums = tokens.setdefault((held_out, name), [0, 0, 0])
            for index, amount in enumerate((1, original, cost + spent)):
                sums[index] += amount
            fields = {"original_tokens": original, "cost_nano_usd": cost, "compression_nano_usd": spent}
            rows.append(row(caller, name, status, **fields))
    await add(books, *rows)

    (found,) = await compared(books, "project", "model", charged_in="2026-11")

    assert dict(found.group) == {
        "project": "project",
        "project_id": caller.project_id,
        "model": "model-a",
    }
    for side, held_out in ((found.treated, False), (found.holdout, True)):
        mine = [sums for (held, _), sums in tokens.items() if held is held_out]
        assert (side.conversations, side.requests) == (len(mine), sum(one[0] for one in mine))
        assert (side.tokens, side.cost_nano_usd) == (sum(one[1] for one in mine), sum(one[2] for one in mine))
        assert side.tokens_squared == pytest.approx(sum(one[1] ** 2 for one in mine), rel=1e-12)
        assert side.cost_squared == pytest.approx(sum(one[2] ** 2 for one in mine), rel=1e-12)
        assert side.cost_times_tokens == pytest.approx(sum(one[1] * one[2] for one in mine), rel=1e-12)
    assert found.mixed == 0
    saving = found.saving
    assert saving is not None and saving == saving_between(found.treated, found.holdout)
    assert saving.low < saving.share < saving.high and saving.share == pytest.approx(0.3, abs=0.01)


async def test_only_what_takes_part_in_a_comparison_is_compared(books: Books) -> None:
    one, two = await books.new_caller(), await books.new_caller()
    plain = {"original_tokens": 100, "cost_nano_usd": 10**9}
    await add(
        books,
        row(one, "a" * 32, "applied", **plain),
        row(one, "b" * 32, "holdout", **plain),
        row(one, "c" * 32, "holdout", **plain, at=OCTOBER),
        # No comparison was asked for; no compression was; another project; and both sides, after the share was changed.
        row(one, None, "applied", **plain),
        row(one, None, None, cost_nano_usd=10**9),
        row(two, "d" * 32, "holdout", **plain),
        row(one, "e" * 32, "holdout", **plain),
        row(one, "e" * 32, "applied", **plain),
    )
    (mine,) = await compared(books, "project", workspace=one.workspace_id, charged_in="2026-11")
    assert (mine.treated.conversations, mine.holdout.conversations, mine.mixed) == (1, 1, 1)
    assert (mine.treated.tokens, mine.treated.cost_nano_usd) == (100, 10**9)
    assert mine.saving is None
    later = NOVEMBER - timedelta(days=1)
    (recent,) = await compared(books, workspace=one.workspace_id, since=later)
    (all_of_it,) = await compared(books, workspace=one.workspace_id)
    assert (recent.holdout.conversations, all_of_it.holdout.conversations) == (1, 2)
    by_project = {one.group["project_id"]: one for one in await compared(books, "project")}
    assert by_project[two.project_id].treated == Side() and by_project[two.project_id].mixed == 0
    with pytest.raises(UnknownAccount):
        await compared(books, workspace="nobody")


async def test_what_a_dearer_chat_was_credited_is_no_cost_of_it(books: Books) -> None:
    chats = await Chats.of(books)
    dearer = Chat(original=3000, original_cached=0, sent=3500, cached=0, compressed=0, conversation="a" * 32)
    await chats.settle(dearer)
    (event,) = [one for one in await books.events() if one.model_id == "chat"]
    (found,) = await compared(books, "model")
    assert (
        found.treated.cost_nano_usd
        == dearer.cost_nano_usd - 500_000
        == dearer.cost_nano_usd + dearer.saved_nano_usd
    )
    # A refund for another reason says nothing of what compression saves.
    await Adjustments(books.database, actor="test").refund(
        event.event_id, reason="an outage", idempotency_key="dearer:by hand"
    )
    assert await compared(books, "model") == [found]


async def test_nothing_compared_is_no_comparison(books: Books) -> None:
    assert await compared(books, "project", "model") == []


async def test_usage_and_statement_say_what_was_saved_gross_and_net(books: Books) -> None:
    caller = await books.new_caller()
    chats = await Chats.of(books, caller)
    dear, free = Chat(), Chat(compressed=0)
    held_out = Chat(status="holdout", compressed=0, original=3000, original_cached=1500)
    plain = Chat(status=None, compressed=0)
    for chat in (dear, free, held_out, plain):
        await chats.settle(chat)
    reader = Reader(books.database)
    by_model = {line.group["model"]: line for line in await books.usage(["model"])}
    chat, lexical = by_model["chat"], by_model["lexical"]
    assert chat.tokens_saved == 2 * 7000
    assert chat.saved_nano_usd == dear.saved_nano_usd + free.saved_nano_usd == 2 * 3_850_000
    assert chat.compression_nano_usd == lexical.cost_nano_usd == 400_000
    assert chat.net_saved_nano_usd == 2 * 3_850_000 - 400_000
    assert (lexical.tokens_saved, lexical.saved_nano_usd, lexical.compression_nano_usd) == (0, 0, 0)
    month = await reader.statement(caller.workspace_id, "2026-11")
    assert sum(line.net_saved_nano_usd for line in month.usage) == chat.net_saved_nano_usd
    assert [one.group["model"] for one in month.comparisons] == []


async def test_of_what_was_written_off_nothing_was_saved(books: Books) -> None:
    """It was charged what there was room for, and would have been without compression."""
    caller = await books.new_caller(spend_limit_nano_usd=2 * 10**6)
    chats = await Chats.of(books, caller)
    used = await chats.hold(Chat(), amount=1000)
    await books.ledger.settle_all(used, outcome="completed", now=books.now)
    (line,) = await books.usage([], workspace=caller.workspace_id)
    assert line.written_off_nano_usd > 0 and line.saved_nano_usd == 0
    assert line.compression_nano_usd == 400_000, "in full: what is claimed is never too much"
    assert line.tokens_saved == 7000
