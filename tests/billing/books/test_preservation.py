"""Sums of checks of compressed chats on each database: by whom and of what, of which period, and how sure they are."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from billing.books.preservation import Preservation, preservation
from billing.errors import UnknownAccount
from billing.preservation.checks import HIGHEST_NATS, PreservationStore
from billing.preservation.confidence_sequence import interval
from tests.billing.conftest import NOW
from tests.billing.preservation.test_checks import check_of

if TYPE_CHECKING:
    from billing.caller import Caller
    from tests.billing.conftest import Books


async def written(books: Books, caller: Caller, *shifts: float, **fields: Any) -> None:
    store = PreservationStore(books.database)
    for number, nats in enumerate(shifts):
        moment = fields.get("settled_at", NOW) + timedelta(seconds=number)
        await store.record(check_of(caller, **{**fields, "nats_per_token": nats, "settled_at": moment}))


async def told(books: Books, by: Any, **which: Any) -> list[Preservation]:
    return await books.database.read(partial(preservation, by=by, **which))


async def test_chats_count_alike_whatever_their_length_and_the_intervals_have_their_means(
    books: Books,
) -> None:
    caller = await books.new_caller()
    await written(books, caller, 0.1, 0.3, scored_tokens=10, agreeing_tokens=10)
    await written(books, caller, 0.5, scored_tokens=500, agreeing_tokens=250)
    (line,) = await told(books, ("model", "kind"))
    assert line.group == {"model": "model-a", "kind": "text"}
    assert (line.checked_chats, line.scored_tokens) == (3, 520)
    assert (line.original_tokens, line.sent_tokens) == (2700, 900)
    assert line.nats.mean == pytest.approx(0.3) and line.agreement.mean == pytest.approx(2.5 / 3)
    assert line.nats.low < 0.3 < line.nats.high and line.agreement.low < 2.5 / 3 < line.agreement.high


async def test_the_interval_is_that_of_the_chats_in_their_order(books: Books) -> None:
    caller = await books.new_caller()
    shifts = [0.01 * (number % 7) for number in range(60)]
    await written(books, caller, *shifts)
    (line,) = await told(books, ("project",))
    assert line.nats == interval(shifts, -1.0, 4.0, 0.95)
    assert line.nats.high < 1.0


async def test_what_lies_outside_the_bounds_is_counted_and_clipped(books: Books) -> None:
    await written(books, await books.new_caller(), 0.0, 40.0, -3.0)
    (line,) = await told(books, ("model",))
    assert line.clipped_chats == 2
    assert line.nats.mean == pytest.approx((0.0 + HIGHEST_NATS - 1.0) / 3)


async def test_each_group_has_its_own_in_the_groups_order(books: Books) -> None:
    caller, other = await books.new_caller(), await books.new_caller()
    await written(books, caller, 0.1, kinds="tool_json")
    await written(books, caller, 0.2, 0.2, model_id="model-b")
    await written(books, other, 0.3)
    by_kind = await told(books, ("kind",))
    assert [(line.group["kind"], line.checked_chats) for line in by_kind] == [("text", 3), ("tool_json", 1)]
    of_one = await told(books, ("project", "model"), workspace=caller.workspace_id)
    assert [(line.group["project_id"], line.group["model"]) for line in of_one] == [
        (caller.project_id, "model-a"),
        (caller.project_id, "model-b"),
    ]
    (whole,) = await told(books, ("workspace",), project_id=other.project_id)
    assert whole.group["workspace_id"] == other.workspace_id and whole.group["workspace"]
    with pytest.raises(UnknownAccount):
        await told(books, ("workspace",), workspace="nobody")


async def test_a_period_has_the_chats_that_were_settled_in_it_and_the_newest_of_many(books: Books) -> None:
    caller = await books.new_caller()
    await written(books, caller, 0.1, settled_at=NOW - timedelta(days=40))
    await written(books, caller, 0.2, 0.4)
    (recent,) = await told(books, ("model",), since=NOW, until=NOW + timedelta(days=1))
    assert recent.nats.mean == pytest.approx(0.3)
    (newest,) = await told(books, ("model",), limit=1)
    assert (newest.checked_chats, newest.nats.mean) == (1, pytest.approx(0.4))


async def test_a_statement_has_its_months_by_project_model_and_kind(books: Books) -> None:
    caller = await books.new_caller()
    await written(books, caller, 0.1)
    await written(books, caller, 0.9, settled_at=NOW - timedelta(days=40))
    found = await books.reader().statement(caller.workspace_id, f"{NOW:%Y-%m}")
    (line,) = found.preservation
    assert [*line.group] == ["project", "project_id", "model", "kind"]
    assert line.nats.mean == pytest.approx(0.1)
    # Nothing of it is money.
    assert found.used_nano_usd == 0
