"""`billing.ledger.ledger` on every database: nothing is lost, doubled or overspent, in whatever order things happen."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from billing.errors import (
    BillingDisabled,
    InvalidKey,
    LedgerUnavailable,
    PricesUnavailable,
    QuotaExceeded,
)
from billing.ledger.ledger import Ledger
from billing.ledger.spool import Spool
from billing.price import ModelPrice
from billing.store.database import open_database

if TYPE_CHECKING:
    from tests.billing.conftest import Books


async def test_a_hold_is_set_aside_and_a_settlement_charges_what_was_used(books: Books) -> None:
    caller = await books.new_caller()
    hold = await books.hold(caller, 1000)
    assert await books.money(caller) == (0, 1000)

    settlement = await books.settle(hold, 400)

    assert (settlement.persisted, settlement.status) == (True, "persisted")
    assert await books.money(caller) == (400, 0)


async def test_a_usage_event_keeps_every_figure(books: Books) -> None:
    caller = await books.new_caller()
    hold = await books.hold(caller)
    await books.settle(hold, 400, now=books.now + timedelta(seconds=2))
    row = await books.database.read(lambda c: c.execute(text("SELECT * FROM usage_events")).one())
    assert row._mapping["event_id"] == hold.event_id
    assert row._mapping["request_id"] == "request"
    assert row._mapping["workspace_id"] == caller.workspace_id
    assert row._mapping["project_id"] == caller.project_id
    assert row._mapping["key_id"] == caller.key_id
    assert row._mapping["model_id"] == "model-a"
    assert row._mapping["pricing_version"] == books.pricing_version
    assert [row._mapping[f"{kind}_tokens"] for kind in ("prompt", "completion", "cached")] == [10, 20, 3]
    assert [row._mapping[f"{kind}_nano_usd"] for kind in ("subtotal", "cost")] == [400, 400]
    assert (bool(row._mapping["minimum_applied"]), bool(row._mapping["stream"])) == (False, True)
    assert row._mapping["outcome"] == "completed"
    assert str(row._mapping["created_at"]).startswith("2026-11-20 12:00:00")
    assert str(row._mapping["settled_at"]).startswith("2026-11-20 12:00:02")


async def test_a_release_gives_the_hold_back_uncharged_and_only_once(books: Books) -> None:
    caller = await books.new_caller()
    hold = await books.hold(caller, 1000)
    assert await books.ledger.release(hold, now=books.now) is True
    assert await books.ledger.release(hold, now=books.now) is False
    assert await books.money(caller) == (0, 0)


async def test_settling_again_changes_nothing_even_all_at_once(books: Books) -> None:
    caller = await books.new_caller()
    hold = await books.hold(caller, 1000)
    settlements = await asyncio.gather(*(books.settle(hold, 400) for _ in range(20)))
    assert all(settlement.persisted for settlement in settlements)
    assert await books.money(caller) == (400, 0)
    assert await books.count_events() == 1


async def test_a_release_and_a_settlement_that_race_leave_one_charge_and_no_hold(books: Books) -> None:
    caller = await books.new_caller()
    for _ in range(10):
        hold = await books.hold(caller, 1000)
        await asyncio.gather(books.settle(hold, 400), books.ledger.release(hold, now=books.now))
    assert await books.money(caller) == (4000, 0)


async def test_the_same_request_id_twice_is_charged_twice(books: Books) -> None:
    caller = await books.new_caller()
    await books.settle(await books.hold(caller), 400)
    await books.settle(await books.hold(caller), 400)
    assert await books.money(caller) == (800, 0)


async def test_no_concurrency_overspends(books: Books) -> None:
    caller = await books.new_caller(spend_limit_nano_usd=50 * 1000)
    results = await asyncio.gather(*(books.hold(caller, 1000) for _ in range(200)), return_exceptions=True)
    refused = [result for result in results if isinstance(result, BaseException)]
    assert all(isinstance(result, QuotaExceeded) for result in refused)
    assert len(refused) == 150
    assert await books.money(caller) == (0, 50 * 1000)


async def test_no_concurrency_overspends_while_holds_are_settled(books: Books) -> None:
    caller = await books.new_caller(spend_limit_nano_usd=50 * 1000)

    async def request() -> bool:
        try:
            hold = await books.hold(caller, 1500)
        except QuotaExceeded:
            return False
        await books.settle(hold, 1000)
        return True

    served = sum(await asyncio.gather(*(request() for _ in range(150))))
    posted, held = await books.money(caller)
    assert (posted, held) == (served * 1000, 0)
    assert posted <= 50 * 1000
    # The money that the worst cases withheld came back: later callers can spend it, to the last whole request.
    while await request():
        served += 1
    assert served == 49


async def test_two_servers_on_one_database_cannot_overspend_together(books: Books, tmp_path: Path) -> None:
    caller = await books.new_caller(spend_limit_nano_usd=50 * 1000)
    other_database = open_database(books.url)
    other_spool = Spool(tmp_path / "other.db")
    other = Ledger(other_database, other_spool)

    async def hold(ledger: Ledger) -> bool:
        try:
            await ledger.hold(
                caller,
                model_id="model-a",
                pricing_version=books.pricing_version,
                amount_nano_usd=1000,
                request_id="r",
                now=books.now,
            )
        except QuotaExceeded:
            return False
        return True

    try:
        ledgers = [books.ledger, other] * 60
        assert sum(await asyncio.gather(*(hold(ledger) for ledger in ledgers))) == 50
        assert await books.money(caller) == (0, 50 * 1000)
    finally:
        await other.close()
        await other_spool.close()
        await other_database.close()


async def test_a_refused_hold_names_the_limit_and_what_is_committed(books: Books) -> None:
    caller = await books.new_caller(spend_limit_nano_usd=1500)
    await books.hold(caller, 1000)
    with pytest.raises(QuotaExceeded) as caught:
        await books.hold(caller, 501)
    refusal = caught.value
    assert (refusal.span, refusal.limit_nano_usd) == ("total", 1500)
    assert (refusal.committed_nano_usd, refusal.wanted_nano_usd) == (1000, 501)
    assert "$0.0000015" in str(refusal)
    await books.hold(caller, 500)


async def test_the_monthly_limit_begins_anew_with_the_month_in_utc(books: Books) -> None:
    november = datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC)
    december = datetime(2026, 12, 1, tzinfo=UTC)
    caller = await books.new_caller(monthly_limit_nano_usd=1000, now=november)
    await books.settle(await books.hold(caller, 1000, now=november), 1000, now=november)
    with pytest.raises(QuotaExceeded) as caught:
        await books.hold(caller, 1, now=november)
    assert (caught.value.span, caught.value.committed_nano_usd) == ("month", 1000)

    await books.settle(await books.hold(caller, 1000, now=december), 700, now=december)

    workspace = await books.accounts.find_workspace(caller.workspace_id)
    assert (workspace.month, workspace.month_posted_nano_usd) == ("2026-12", 700)
    assert await books.money(caller) == (1700, 0)
    with pytest.raises(QuotaExceeded):
        await books.hold(caller, 301, now=december)
    await books.hold(caller, 300, now=december)


async def test_a_hold_of_last_month_counts_against_the_month_that_pays_it(books: Books) -> None:
    november = datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC)
    december = datetime(2026, 12, 1, tzinfo=UTC)
    caller = await books.new_caller(monthly_limit_nano_usd=1000, now=november)
    held = await books.hold(caller, 600, now=november)
    with pytest.raises(QuotaExceeded):
        await books.hold(caller, 401, now=december)
    await books.settle(held, 600, now=december)
    workspace = await books.accounts.find_workspace(caller.workspace_id)
    assert (workspace.month, workspace.month_posted_nano_usd) == ("2026-12", 600)


async def test_a_servers_clock_that_is_a_month_off_opens_no_second_budget(books: Books) -> None:
    caller = await books.new_caller(monthly_limit_nano_usd=1000)
    await books.settle(await books.hold(caller, 1000), 1000)
    for wrong in (datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)):
        with pytest.raises(QuotaExceeded):
            await books.ledger.hold(
                caller,
                model_id="model-a",
                pricing_version=books.pricing_version,
                amount_nano_usd=1,
                request_id="r",
                now=wrong,
            )


async def test_a_workspace_with_billing_off_is_refused_until_it_is_on(books: Books) -> None:
    caller = await books.new_caller()
    await books.accounts.change_workspace(caller.workspace_id, {"billing_enabled": False})
    with pytest.raises(BillingDisabled):
        await books.hold(caller)
    await books.accounts.change_workspace(caller.workspace_id, {"billing_enabled": True})
    await books.hold(caller)


async def test_a_revoked_workspace_holds_nothing_even_for_a_cached_caller(books: Books) -> None:
    caller = await books.new_caller()
    await books.accounts.revoke_workspace(caller.workspace_id, now=books.now)
    with pytest.raises(InvalidKey):
        await books.hold(caller)


async def test_a_project_that_is_not_metered_writes_nothing(books: Books) -> None:
    caller = await books.new_caller(metered=False, spend_limit_nano_usd=0)
    hold = await books.hold(caller, 10**9)
    settlement = await books.settle(hold)
    assert (hold.status, settlement.status, settlement.persisted) == ("not_applicable",) * 2 + (False,)
    assert await books.ledger.release(hold, now=books.now) is False
    assert await books.money(caller) == (0, 0)
    assert await books.count_events() == 0


async def test_a_cancelled_hold_is_given_back(books: Books) -> None:
    caller = await books.new_caller()
    # The spool is known to be writable from here on: the next holds begin with their opening.
    await books.ledger.release(await books.hold(caller, 1000), now=books.now)
    for yields in range(6):
        asking = asyncio.create_task(books.hold(caller, 1000))
        for _ in range(yields):
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    await books.ledger.close()
    assert await books.money(caller) == (0, 0)


async def test_a_settlement_whose_caller_is_cancelled_is_still_written(books: Books) -> None:
    caller = await books.new_caller()
    for yields in range(1, 6):
        hold = await books.hold(caller, 1000)
        settling = asyncio.create_task(books.settle(hold, 400))
        for _ in range(yields):
            await asyncio.sleep(0)
        settling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await settling
    await books.ledger.close()
    assert await books.money(caller) == (5 * 400, 0)


async def test_a_price_version_rises_only_when_a_price_changed(books: Books) -> None:
    listed = (await books.ledger.current_prices()).prices
    first = books.pricing_version
    assert await books.ledger.publish_prices(listed[::-1], now=books.now) == first
    dearer = ModelPrice("model-a", 150_001, 600_000, 20_000)
    assert await books.ledger.publish_prices([dearer], now=books.now) == first + 1
    in_force = await books.ledger.current_prices()
    assert (in_force.version, in_force.prices) == (first + 1, (dearer,))
    assert in_force.of("model-a") == dearer
    assert in_force.of("model-b") is None
    assert await books.ledger.publish_prices(listed, now=books.now) == first + 2
    for version, cached in ((3, None), (4, 0), (5, 75_000)):
        price = ModelPrice("model-a", 150_000, 600_000, 20_000, cached)
        assert await books.ledger.publish_prices([price], now=books.now) == first + version
        assert (await books.ledger.current_prices()).of(price.model_id) == price


async def test_a_server_charges_by_its_own_list_whoever_published_another_since(books: Books) -> None:
    mine = (await books.ledger.current_prices()).prices
    other = [ModelPrice("model-a", 1, 2, 3), ModelPrice("model-z", 1, 1, 1)]
    theirs = await books.ledger.publish_prices(other, now=books.now)
    assert (await books.ledger.current_prices()).version == theirs
    assert (await books.ledger.current_prices(mine)).version == books.pricing_version
    assert (await books.ledger.current_prices(mine[::-1])).prices == mine
    assert (await books.ledger.current_prices(other)).version == theirs
    with pytest.raises(PricesUnavailable, match="no price list"):
        await books.ledger.current_prices(mine[:1])
    again = await books.ledger.publish_prices(mine, now=books.now)
    assert (await books.ledger.current_prices(mine)).version == again


async def test_servers_that_start_together_publish_one_version(books: Books) -> None:
    prices = [ModelPrice("model-c", 1, 2, 3)]
    versions = await asyncio.gather(*(books.ledger.publish_prices(prices, now=books.now) for _ in range(20)))
    assert set(versions) == {books.pricing_version + 1}


@pytest.mark.parametrize("prices", [[], [ModelPrice("m", 1, 1, 1)] * 2])
async def test_a_price_list_that_is_empty_or_doubled_is_refused(
    books: Books, prices: list[ModelPrice]
) -> None:
    with pytest.raises(ValueError, match="prices:"):
        await books.ledger.publish_prices(prices, now=books.now)


async def test_without_a_ledger_nothing_is_held_and_no_price_is_known(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path / 'none.db'}")
    spool = Spool(tmp_path / "spool.db")
    ledger = Ledger(database, spool)
    try:
        with pytest.raises(PricesUnavailable):
            await ledger.current_prices()
        with pytest.raises(LedgerUnavailable):
            await ledger.publish_prices([ModelPrice("m", 1, 1, 1)], now=datetime.now(UTC))
    finally:
        await ledger.close()
        await spool.close()
        await database.close()


async def test_a_migrated_ledger_without_prices_says_so(database_url: str, tmp_path: Path) -> None:
    from billing.store.migration import upgrade

    await upgrade(database_url)
    database = open_database(database_url)
    spool = Spool(tmp_path / "spool.db")
    try:
        with pytest.raises(PricesUnavailable, match="no price list"):
            await Ledger(database, spool).current_prices()
    finally:
        await spool.close()
        await database.close()
