"""Collections on every database: whole cents of what is owed, once, however many cut and settle at once."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from billing.accounts import audit_log
from billing.collections import collection_sql
from billing.collections.collection import NANO_PER_CENT, STATES, State, check_move, whole_cents
from billing.collections.collector import Collector
from billing.errors import (
    IllegalMove,
    InvalidCollection,
    RowRefused,
    UnknownAccount,
    UnknownCollection,
)
from billing.store.database import open_database

if TYPE_CHECKING:
    from billing.caller import Caller
    from billing.collections.collection import Collection
    from tests.billing.conftest import Books

THRESHOLD_CENTS = 5
LEGAL = {
    ("open", "paid"),
    ("open", "failed"),
    ("open", "void"),
    ("failed", "open"),
    ("failed", "paid"),
    ("failed", "void"),
}


def collector(books: Books) -> Collector:
    return Collector(books.database, actor="test")


async def spend(books: Books, caller: Caller, nano_usd: int) -> None:
    await books.settle(await books.hold(caller, nano_usd), nano_usd)


async def cut(books: Books) -> list[Collection]:
    return await collector(books).cut_due(threshold_cents=THRESHOLD_CENTS, now=books.now)


async def uncollected(books: Books, caller: Caller) -> int:
    assert await books.differences() == []
    workspace = await books.accounts.find_workspace(caller.workspace_id)
    return workspace.posted_nano_usd - workspace.collected_nano_usd


@given(st.integers(0, 2**63 - 1), st.integers(1, 10**6))
def test_a_collection_takes_all_whole_cents_from_the_threshold_on(nano_usd: int, threshold: int) -> None:
    cents = whole_cents(nano_usd, threshold_cents=threshold)
    assert (cents > 0) == (nano_usd >= threshold * NANO_PER_CENT)
    if cents:
        assert 0 <= nano_usd - cents * NANO_PER_CENT < NANO_PER_CENT


def test_a_threshold_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="threshold_cents"):
        whole_cents(1, threshold_cents=0)


async def test_a_balance_a_nano_dollar_short_of_the_threshold_is_left(books: Books) -> None:
    caller = await books.new_caller()
    await spend(books, caller, THRESHOLD_CENTS * NANO_PER_CENT - 1)
    assert await cut(books) == []
    await spend(books, caller, 1)
    (collection,) = await cut(books)
    assert (collection.cents, collection.state) == (THRESHOLD_CENTS, "open")


async def test_whole_cents_are_cut_and_the_remainder_carries(books: Books) -> None:
    caller = await books.new_caller()
    await spend(books, caller, 7 * NANO_PER_CENT + 1_234_567)
    (first,) = await cut(books)
    assert (first.cents, first.nano_usd) == (7, 70_000_000)
    assert await uncollected(books, caller) == 1_234_567
    assert await cut(books) == []
    await spend(books, caller, 5 * NANO_PER_CENT - 1_234_567)
    (second,) = await cut(books)
    assert second.cents == 5
    assert await uncollected(books, caller) == 0
    assert [c.idempotency_key for c in (first, second)] == [
        f"{caller.workspace_id}-1",
        f"{caller.workspace_id}-2",
    ]


async def test_an_amount_below_the_threshold_is_cut_when_an_operator_says_so(books: Books) -> None:
    caller = await books.new_caller()
    await spend(books, caller, NANO_PER_CENT - 1)
    assert await collector(books).cut_now(caller.workspace_id, now=books.now) is None
    await spend(books, caller, 2)
    made = await collector(books).cut_now(caller.workspace_id, now=books.now)
    assert made is not None and made.cents == 1
    assert await uncollected(books, caller) == 1
    with pytest.raises(UnknownAccount):
        await collector(books).cut_now("nobody", now=books.now)


async def test_what_is_only_held_is_not_collected(books: Books) -> None:
    caller = await books.new_caller()
    await books.hold(caller, 100 * NANO_PER_CENT)
    assert await cut(books) == []


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("wanted", STATES)
async def test_a_move_is_made_or_refused_with_both_states(books: Books, state: State, wanted: State) -> None:
    caller = await books.new_caller()
    await spend(books, caller, 9 * NANO_PER_CENT)
    (made,) = await cut(books)
    later = books.now + timedelta(hours=1)
    if state != "open":
        await collector(books).mark(made.id, state, reference="r-1", now=books.now)
    owed = await uncollected(books, caller)
    if (state, wanted) in LEGAL:
        moved = await collector(books).mark(made.id, wanted, note="by hand", now=later)
        assert (moved.state, moved.note, moved.updated_at) == (wanted, "by hand", later)
        assert moved.closed_at == (later if wanted in ("paid", "void") else None)
        assert await uncollected(books, caller) == owed + (made.nano_usd if wanted == "void" else 0)
        return
    with pytest.raises(IllegalMove, match=f"is {state} and cannot become {wanted}"):
        await collector(books).mark(made.id, wanted, now=later)
    assert await uncollected(books, caller) == owed


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("wanted", STATES)
def test_the_legal_moves_are_these(state: State, wanted: State) -> None:
    if (state, wanted) in LEGAL:
        check_move("col_x", state, wanted)
        return
    with pytest.raises(IllegalMove):
        check_move("col_x", state, wanted)


async def test_a_voided_amount_is_collected_again_under_another_key(books: Books) -> None:
    caller = await books.new_caller()
    await spend(books, caller, 9 * NANO_PER_CENT + 3)
    (first,) = await cut(books)
    await collector(books).mark(first.id, "void", now=books.now)
    (second,) = await cut(books)
    assert (second.cents, await uncollected(books, caller)) == (9, 3)
    assert second.idempotency_key != first.idempotency_key


async def test_one_that_failed_is_owed_by_itself_and_may_be_opened_again(books: Books) -> None:
    caller = await books.new_caller()
    await spend(books, caller, 9 * NANO_PER_CENT)
    (made,) = await cut(books)
    await collector(books).mark(made.id, "failed", note="card refused", now=books.now)
    assert await cut(books) == []
    opened = await collector(books).mark(made.id, "open", now=books.now)
    assert (opened.times_opened, opened.note, opened.idempotency_key) == (
        2,
        "card refused",
        made.idempotency_key,
    )


@pytest.mark.parametrize("collection_id", ["col_none", "", "a\0b", "\ud800"])
async def test_an_id_that_is_none_is_refused(books: Books, collection_id: str) -> None:
    with pytest.raises(UnknownCollection):
        await collector(books).mark(collection_id, "paid", now=books.now)


@pytest.mark.parametrize(
    ("field", "value"), [("reference", "x" * 257), ("reference", ""), ("note", "a\nb"), ("note", "x" * 1025)]
)
async def test_a_reference_or_a_note_that_cannot_be_kept_is_refused(
    books: Books, field: str, value: str
) -> None:
    with pytest.raises(InvalidCollection, match=f"^{field}: "):
        await collector(books).mark("col_none", "paid", **{field: value}, now=books.now)


async def test_lists_are_narrowed_by_workspace_state_and_time(books: Books) -> None:
    one, two = await books.new_caller(), await books.new_caller()
    made = []
    for day, caller in enumerate((one, two)):
        await spend(books, caller, 9 * NANO_PER_CENT)
        made += await collector(books).cut_due(threshold_cents=5, now=books.now + timedelta(days=day))
    mine = collector(books)
    await mine.mark(made[1].id, "paid", now=books.now)
    assert [c.id for c in await mine.listed()] == [c.id for c in made]
    assert [c.id for c in await mine.listed(workspace=one.workspace_id)] == [made[0].id]
    assert [c.id for c in await mine.listed(state="paid")] == [made[1].id]
    assert [c.id for c in await mine.listed(since=made[1].created_at)] == [made[1].id]
    assert [c.id for c in await mine.listed(until=made[1].created_at)] == [made[0].id]
    with pytest.raises(UnknownAccount):
        await mine.listed(workspace="nobody")


async def test_every_change_is_in_the_audit_log(books: Books) -> None:
    caller = await books.new_caller()
    await spend(books, caller, 9 * NANO_PER_CENT)
    (made,) = await cut(books)
    await collector(books).mark(made.id, "paid", reference="r-1", now=books.now + timedelta(hours=1))
    noted = await books.database.read(lambda c: audit_log.entries(c, subject=made.id))
    assert [(entry.action, entry.actor) for entry in noted] == [
        ("collection.cut", "test"),
        ("collection.move", "test"),
    ]
    assert noted[0].details["cents"] == 9
    assert noted[1].details["state"] == ["open", "paid"] and noted[1].details["reference"] == [None, "r-1"]
    assert [entry.at for entry in noted] == [books.now, books.now + timedelta(hours=1)]
    assert {entry.workspace_id for entry in noted} == {caller.workspace_id}


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM collections",
        "UPDATE collections SET cents = cents + 1, nano_usd = nano_usd + 10000000",
        "UPDATE collections SET workspace_id = 'ws_other'",
        "UPDATE collections SET state = 'lost'",
        "UPDATE collections SET state = 'paid'",
        "UPDATE workspaces SET collected_nano_usd = posted_nano_usd + 1",
        "DELETE FROM audit_log",
        "UPDATE audit_log SET actor = 'nobody'",
    ],
)
async def test_the_database_itself_refuses(books: Books, statement: str) -> None:
    await spend(books, await books.new_caller(), 9 * NANO_PER_CENT)
    await cut(books)
    with pytest.raises(RowRefused):
        await books.database.write(lambda c: c.execute(text(statement)))


async def test_many_cutters_and_settlers_lose_and_double_nothing(books: Books) -> None:
    """Six servers of their own, three of which cut all the time, while the others spend in odd amounts."""
    callers = [await books.new_caller() for _ in range(3)]
    dice = random.Random(7)
    amounts = [dice.randrange(1, 4 * NANO_PER_CENT) for _ in range(120)]
    databases = [open_database(books.url, pool_size=2) for _ in range(3)]
    spent = asyncio.Event()

    async def cutting(server: Collector) -> int:
        count = 0
        while not spent.is_set():
            count += len(await server.cut_due(threshold_cents=THRESHOLD_CENTS, now=books.now))
        return count

    async def spending(caller: Caller, part: list[int]) -> None:
        for amount in part:
            await spend(books, caller, amount)

    cutters = [
        asyncio.create_task(cutting(Collector(database, actor=f"server {n}")))
        for n, database in enumerate(databases)
    ]
    await asyncio.gather(*(spending(callers[n % 3], amounts[n::6]) for n in range(6)))
    spent.set()
    counts = await asyncio.gather(*cutters)
    last = await cut(books)
    for database in databases:
        await database.close()

    made = await collector(books).listed()
    assert len(made) == sum(counts) + len(last) > 3
    assert len({c.idempotency_key for c in made}) == len(made)
    rest = [await uncollected(books, caller) for caller in callers]
    assert all(nano < THRESHOLD_CENTS * NANO_PER_CENT for nano in rest)
    assert sum(c.cents for c in made) * NANO_PER_CENT + sum(rest) == sum(amounts)


async def test_a_cut_that_breaks_off_leaves_nothing_behind(books: Books) -> None:
    """As when the server dies between the collection's row and the workspace's."""
    caller = await books.new_caller()
    await spend(books, caller, 9 * NANO_PER_CENT)

    class Died(Exception):
        pass

    def half(connection: object) -> None:
        made = collection_sql.cut(
            connection, caller.workspace_id, threshold_cents=5, actor="x", now=books.now
        )  # type: ignore[arg-type]
        assert made is not None
        raise Died

    with pytest.raises(Died):
        await books.database.write(half)
    assert await collector(books).listed() == []
    assert await uncollected(books, caller) == 9 * NANO_PER_CENT
    assert len(await cut(books)) == 1
