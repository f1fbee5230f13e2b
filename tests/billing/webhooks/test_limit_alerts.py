"""Spend limits at 50, 80 and 100%: each percentage of each limit is told once, whoever looks and however often."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

from billing.accounts.keys import KeyChange, KeyTerms
from billing.adjustments.adjustments import Adjustments
from billing.caller import Caller
from billing.errors import QuotaExceeded
from billing.store.database import FakeOutageDatabase
from billing.store.webhook_tables import limit_alerts
from billing.webhooks import limit_alerts as alerts
from billing.webhooks.limit_alerts import AT_ONCE, LimitWatch, Refusals, RefusedLimit, tidy
from tests.billing.webhooks.conftest import Hooks

LIMIT = 1001
_a = limit_alerts.c
Told = tuple[str, str | None, int, int]


async def told(hooks: Hooks) -> list[Told]:
    """What arrived since the last call: span, month, limit and percentage of each."""
    await hooks.send()
    found = [one.payload for one in hooks.receiver.got]
    hooks.receiver.got.clear()
    assert all(one["type"] == "limit.reached" for one in found)
    return sorted(
        (d["span"], d["month"], d["limit_nano_usd"], d["percent"]) for d in (one["data"] for one in found)
    )


async def look(hooks: Hooks, refusals: Refusals | None = None) -> int:
    return await LimitWatch(hooks.books.database, refusals or Refusals()).once()


async def spend(hooks: Hooks, caller: Caller, nano_usd: int, **kinds: Any) -> None:
    await hooks.books.settle(await hooks.books.hold(caller, nano_usd, **kinds), nano_usd, **kinds)


async def test_each_percentage_is_told_once_and_exactly_when_it_is_reached(hooks: Hooks) -> None:
    await hooks.webhooks.add(f"{hooks.receiver.url}/hook")
    caller = await hooks.books.new_caller(spend_limit_nano_usd=LIMIT)
    # 50% of 1001 is 500.5, and 80% is 800.8.
    for cost, expected in ((500, []), (1, [50]), (299, []), (1, [80]), (199, []), (1, [100])):
        await spend(hooks, caller, cost)
        await look(hooks)
        await look(hooks)
        assert await told(hooks) == [("total", None, LIMIT, percent) for percent in expected]


async def test_what_is_told_says_whose_limit_and_how_much(hooks: Hooks) -> None:
    await hooks.webhooks.add(f"{hooks.receiver.url}/hook", workspace=None)
    caller = await hooks.books.new_caller(spend_limit_nano_usd=2 * 10**9)
    await spend(hooks, caller, 10**9 + 5)
    await look(hooks)
    await hooks.send()
    (got,) = hooks.receiver.got
    assert got.payload["data"] == {
        "workspace_id": caller.workspace_id,
        "workspace_name": (await hooks.books.accounts.find_workspace(caller.workspace_id)).name,
        "key_id": None,
        "span": "total",
        "month": None,
        "percent": 50,
        "limit_nano_usd": 2 * 10**9,
        "limit_usd": "2.00",
        "used_nano_usd": 10**9 + 5,
        "used_usd": "1.000000005",
        "requests_refused": False,
    }


async def test_a_jump_tells_all_that_it_passed(hooks: Hooks) -> None:
    await hooks.webhooks.add(f"{hooks.receiver.url}/hook")
    caller = await hooks.books.new_caller(spend_limit_nano_usd=1000, monthly_limit_nano_usd=1000)
    await spend(hooks, caller, 1000)
    assert await look(hooks) == 6
    found = await told(hooks)
    assert found == [
        (span, month, 1000, p)
        for span, month in (("month", "2026-11"), ("total", None))
        for p in (50, 80, 100)
    ]


async def test_a_new_month_and_a_new_limit_have_percentages_of_their_own(hooks: Hooks) -> None:
    await hooks.webhooks.add(f"{hooks.receiver.url}/hook")
    caller = await hooks.books.new_caller(monthly_limit_nano_usd=1000)
    await spend(hooks, caller, 600)
    await look(hooks)
    assert await told(hooks) == [("month", "2026-11", 1000, 50)]
    await hooks.books.at(datetime(2026, 12, 1, tzinfo=UTC))
    assert await look(hooks) == 0, "the row still says November"
    await spend(hooks, caller, 10)
    assert await look(hooks) == 0
    await spend(hooks, caller, 490)
    await look(hooks)
    assert await told(hooks) == [("month", "2026-12", 1000, 50)]
    for limit, expected in ((2000, []), (800, [50]), (600, [50, 80]), (1000, [])):
        await hooks.books.accounts.change_workspace(
            caller.workspace_id, {"spend_limit_nano_usd": None, "monthly_limit_nano_usd": limit}
        )
        await look(hooks)
        assert await told(hooks) == [("month", "2026-12", limit, percent) for percent in expected]


@pytest.mark.parametrize("limit", [0, 2**63 - 1])
async def test_a_limit_of_nothing_or_of_everything_is_never_reached(hooks: Hooks, limit: int) -> None:
    await hooks.books.new_caller(spend_limit_nano_usd=limit, monthly_limit_nano_usd=limit)
    assert await look(hooks) == 0


async def test_many_servers_that_look_while_money_is_spent_tell_each_once(hooks: Hooks) -> None:
    await hooks.webhooks.add(f"{hooks.receiver.url}/hook")
    callers = [
        await hooks.books.new_caller(spend_limit_nano_usd=1000, monthly_limit_nano_usd=500) for _ in range(3)
    ]

    async def spends(caller: Caller) -> None:
        for _ in range(10):
            await spend(hooks, caller, 50)

    async def looks() -> None:
        for _ in range(10):
            await look(hooks)

    await asyncio.gather(*map(spends, callers), *(looks() for _ in range(3)))
    await look(hooks)
    found = await told(hooks)
    each = [("month", "2026-11", 500, p) for p in (50, 80, 100)] + [("total", None, 1000, 50)]
    assert found == sorted(each * 3)


async def test_a_limit_that_refuses_is_used_up_if_most_of_it_is_posted(hooks: Hooks) -> None:
    await hooks.webhooks.add(f"{hooks.receiver.url}/hook")
    caller = await hooks.books.new_caller(spend_limit_nano_usd=1000)
    refusals = Refusals()

    async def is_refused(nano_usd: int) -> None:
        with pytest.raises(QuotaExceeded) as refused:
            await hooks.books.hold(caller, nano_usd)
        refusals.note(RefusedLimit(caller.workspace_id, "", refused.value.span, refused.value.limit_nano_usd))

    await spend(hooks, caller, 799)
    # One large request says nothing about a limit that is hardly used.
    await is_refused(10_000)
    await look(hooks, refusals)
    assert await told(hooks) == [("total", None, 1000, 50)]
    await spend(hooks, caller, 1)
    await look(hooks, refusals)
    assert await told(hooks) == [("total", None, 1000, 80)]
    await is_refused(201)
    await look(hooks, refusals)
    await hooks.send()
    assert [one.payload["data"]["requests_refused"] for one in hooks.receiver.got] == [True]
    assert await told(hooks) == [("total", None, 1000, 100)]
    await is_refused(201)
    await spend(hooks, caller, 200)
    await look(hooks, refusals)
    assert await told(hooks) == []


async def test_who_pays_in_advance_is_told_of_every_amount_that_is_used_up(hooks: Hooks) -> None:
    await hooks.webhooks.add(f"{hooks.receiver.url}/hook")
    caller = await hooks.books.new_caller(spend_limit_nano_usd=1000)
    paid = Adjustments(hooks.books.database, actor="test")
    everything = [("total", None, 1000, percent) for percent in (50, 80, 100)]
    for number in range(3):
        await spend(hooks, caller, 1000)
        await look(hooks)
        assert await told(hooks) == everything
        # Half of it is still used, so nothing begins anew.
        for part, nano_usd in enumerate((500, 500)):
            key = f"{number}-{part}"
            await paid.credit(caller.workspace_id, nano_usd=nano_usd, reason="paid", idempotency_key=key)
            assert await look(hooks) == 0


async def test_refused_limits_are_looked_at_in_parts_after_those_that_are_reached(hooks: Hooks) -> None:
    await hooks.webhooks.add(f"{hooks.receiver.url}/hook")
    reached, refused = [await hooks.books.new_caller(spend_limit_nano_usd=1000) for _ in range(2)]
    await spend(hooks, reached, 500)
    await spend(hooks, refused, 900)
    refusals = Refusals()
    for number in range(AT_ONCE + 50):
        refusals.note(RefusedLimit(f"ws_{number}", "", "total", 1000))
    refusals.note(RefusedLimit(refused.workspace_id, "", "total", 1000))
    counted = FakeOutageDatabase(hooks.books.database)
    assert await LimitWatch(counted, refusals).once() == 4
    # Whether something fell, what was reached and that there is no more of it, the two parts, and budgets.
    assert counted.reads == 6
    assert (await told(hooks))[-1] == ("total", None, 1000, 100)


async def test_a_webhook_of_one_workspace_is_told_of_no_other(hooks: Hooks) -> None:
    one, other = [await hooks.books.new_caller(spend_limit_nano_usd=1000) for _ in range(2)]
    await hooks.webhooks.add(f"{hooks.receiver.url}/one", workspace=one.workspace_id)
    await hooks.webhooks.add(f"{hooks.receiver.url}/paid", events=["collection.paid"])
    for caller in (one, other):
        await spend(hooks, caller, 500)
    assert await look(hooks) == 2
    await hooks.send()
    (got,) = hooks.receiver.got
    assert got.path == "/one" and got.payload["data"]["workspace_id"] == one.workspace_id


async def test_what_was_reached_before_a_webhook_was_added_is_not_told(hooks: Hooks) -> None:
    caller = await hooks.books.new_caller(spend_limit_nano_usd=1000)
    await spend(hooks, caller, 600)
    assert await look(hooks) == 1
    await hooks.webhooks.add(f"{hooks.receiver.url}/hook")
    await spend(hooks, caller, 200)
    await look(hooks)
    assert await told(hooks) == [("total", None, 1000, 80)]


async def test_the_limits_of_a_key_are_told_with_its_id(hooks: Hooks) -> None:
    await hooks.webhooks.add(f"{hooks.receiver.url}/hook")
    books, refusals = hooks.books, Refusals()
    other = await books.new_caller()
    terms = KeyTerms(spend_limit_nano_usd=1000, monthly_limit_nano_usd=2000)
    _, token = await books.accounts.keys.create(other.project_id, "limited", terms=terms, now=books.now)
    caller = await books.accounts.authenticate(token, now=books.now)
    await spend(hooks, other, 5000)
    await spend(hooks, caller, 850)
    await look(hooks)
    await hooks.send()
    assert {one.payload["data"]["key_id"] for one in hooks.receiver.got} == {caller.key_id}
    assert await told(hooks) == [("total", None, 1000, 50), ("total", None, 1000, 80)]
    with pytest.raises(QuotaExceeded) as refused:
        await books.hold(caller, 200)
    assert refused.value.whose == "key"
    refusals.note(RefusedLimit(caller.workspace_id, caller.key_id, "total", refused.value.limit_nano_usd))
    await look(hooks, refusals)
    await look(hooks, refusals)
    assert await told(hooks) == [("total", None, 1000, 100)]


async def announced(hooks: Hooks) -> list[tuple[str, str, int, int]]:
    statement = select(_a.span, _a.month, _a.limit_nano_usd, _a.percent).order_by(
        _a.span, _a.month, _a.percent
    )
    return [tuple(row) for row in await hooks.books.database.read(lambda c: c.execute(statement).all())]


async def tidied(hooks: Hooks) -> None:
    await tidy(hooks.books.database, lambda waiting: None)


async def test_what_was_announced_of_a_month_is_forgotten_once_it_is_long_over(hooks: Hooks) -> None:
    caller = await hooks.books.new_caller(monthly_limit_nano_usd=1000)
    await spend(hooks, caller, 800)
    await look(hooks)
    of_november = [("month", "2026-11", 1000, percent) for percent in (50, 80)]
    for moment in (datetime(2026, 12, 1, tzinfo=UTC), datetime(2027, 1, 9, 23, tzinfo=UTC)):
        await hooks.books.at(moment)
        await tidied(hooks)
        assert await announced(hooks) == of_november
    await hooks.books.at(datetime(2027, 1, 10, tzinfo=UTC))
    await tidied(hooks)
    assert await announced(hooks) == []


async def test_of_a_limit_of_all_time_it_is_forgotten_400_days_after_if_it_is_not_in_force(
    hooks: Hooks,
) -> None:
    kept = await hooks.books.new_caller(spend_limit_nano_usd=1000)
    changed = await hooks.books.new_caller(spend_limit_nano_usd=900)
    for caller in (kept, changed):
        await spend(hooks, caller, 600)
    await look(hooks)
    made = hooks.books.clock.moment
    await hooks.books.accounts.change_workspace(changed.workspace_id, {"spend_limit_nano_usd": 5000})
    of_both = sorted([("total", "", 1000, 50), ("total", "", 900, 50)])
    await hooks.books.at(made + timedelta(days=399))
    await tidied(hooks)
    assert sorted(await announced(hooks)) == of_both
    await hooks.books.at(made + timedelta(days=401))
    await tidied(hooks)
    assert await announced(hooks) == [("total", "", 1000, 50)]
    await look(hooks)
    assert await announced(hooks) == [("total", "", 1000, 50)]


async def test_alerts_of_a_key_and_more_than_are_deleted_at_once(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerts, "DELETED_AT_ONCE", 2)
    for _ in range(3):
        caller = await hooks.books.new_caller(monthly_limit_nano_usd=1000)
        terms = {"monthly_limit_nano_usd": 500, "spend_limit_nano_usd": 500}
        now = hooks.books.clock.moment
        await hooks.books.accounts.keys.change(caller.key_id, KeyChange(terms), now=now)
        await spend(hooks, caller, 500)
    await look(hooks)
    assert len(await announced(hooks)) == 3 * (1 + 3 + 3)
    await hooks.books.at(hooks.books.clock.moment + timedelta(days=500))
    await tidied(hooks)
    # The keys' limits of all time are in force.
    assert [one[0] for one in await announced(hooks)] == ["total"] * 9
