"""On PostgreSQL usage events lie in a table for each month, and each of them is there once all the same."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import partial
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from billing.errors import RowRefused
from billing.ledger import ledger_sql
from billing.rollups import partitions
from billing.rollups.partitions import (
    MONTHS_AHEAD,
    day_of,
    following,
    id_of_day,
    make_month,
    make_months,
    name_of,
)
from billing.usage import mint_event_id

if TYPE_CHECKING:
    from tests.billing.conftest import Books

pytestmark = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


async def tables_of_events(books: Books) -> dict[str, int]:
    """Where events are, and how many."""
    counting = text("SELECT tableoid::regclass::text, count(*) FROM usage_events GROUP BY 1")
    return {row[0]: row[1] for row in await books.database.read(lambda c: c.execute(counting).all())}


async def months(books: Books) -> set[str]:
    listing = text(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'usage_events'::regclass"
    )
    return set(await books.database.read(lambda c: c.execute(listing).scalars().all()))


async def test_months_are_made_before_they_begin(books: Books) -> None:
    await make_months(books.database)
    known = await months(books)
    later = datetime(2028, 1, 31, 23, 59, tzinfo=UTC)
    await books.at(later)
    made = await make_months(books.database)
    expected, month = [], date(2028, 1, 1)
    for _ in range(MONTHS_AHEAD + 1):
        expected.append(name_of(month))
        month = following(month)
    assert made == expected and await make_months(books.database) == []
    assert await months(books) == known | set(expected)
    await books.settle(await books.hold(await books.new_caller(), now=later), now=later)
    assert await tables_of_events(books) == {"usage_events_2028_01": 1}
    with pytest.raises(RowRefused, match="append-only"):
        await books.database.write(lambda c: c.execute(text("DELETE FROM usage_events_2028_01")))


async def test_an_event_without_a_table_of_its_own_is_charged_all_the_same(books: Books) -> None:
    caller = await books.new_caller()
    await books.settle(await books.hold(caller))
    (event,) = await books.events()
    for moment in (datetime(2020, 1, 1, tzinfo=UTC), datetime(2099, 1, 1, tzinfo=UTC)):
        for _ in "twice":
            other = replace(event, event_id=mint_event_id(moment)[:12] + "0" * 20)
            await books.database.write(partial(ledger_sql.post_all, events=[other]))
    found = await tables_of_events(books)
    assert found["usage_events_before"] >= 1 and found["usage_events_other"] == 1 and sum(found.values()) == 3
    assert await books.money(caller) == (1200, 0)
    (line,) = await books.usage(["workspace"])
    assert line.requests == 3
    # A month whose events lie elsewhere already gets no table, and nothing is stuck.
    await books.at(datetime(2098, 12, 5, tzinfo=UTC))
    assert await make_months(books.database) == [
        f"usage_events_{month}" for month in ("2098_12", "2099_02", "2099_03")
    ]
    assert await books.money(caller) == (1200, 0)


async def test_a_month_is_made_in_the_midst_of_a_settlement_without_being_in_its_way(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "PATIENCE_MS", 20_000)
    monkeypatch.setattr(books.database, "_timeout_s", 20)
    engine = create_async_engine(books.url)
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted AND database = :database")
    this = text("SELECT oid FROM pg_database WHERE datname = current_database()")
    async with engine.connect() as settling, engine.connect() as watching:
        await settling.execute(text("UPDATE workspaces SET held_nano_usd = held_nano_usd"))
        making = asyncio.create_task(books.database.write(partial(make_month, month=date(2031, 5, 1))))
        oid = (await watching.execute(this)).scalar_one()
        while not (await watching.execute(waiting, {"database": oid})).scalar_one():
            assert not making.done()
        # As the insert of an event does, which would wait here.
        await settling.execute(text("LOCK TABLE usage_events IN ROW EXCLUSIVE MODE NOWAIT"))
        await settling.rollback()
        assert await making == "usage_events_2031_05"
    await engine.dispose()


async def test_ids_are_ordered_as_their_times(books: Books) -> None:
    moment = datetime(2026, 11, 30, 23, 59, 59, 999000, tzinfo=UTC)
    minted = mint_event_id(moment)
    assert day_of(minted) == date(2026, 11, 30)
    assert id_of_day(date(2026, 11, 30)) <= minted < id_of_day(date(2026, 12, 1))
    assert day_of("no time at all") is None
