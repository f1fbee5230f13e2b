"""Budgets at 50, 80 and 100%: each percentage of each budget, period and person is told once, whoever looks."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, text

from billing.caller import Caller
from billing.errors import BudgetExceeded
from billing.labels import labelled
from billing.ledger import ledger_sql
from billing.ledger.budget_settings import Budgets, BudgetScope
from billing.ledger.budgets import BudgetState
from billing.periods import PeriodKind
from billing.store.database import FakeOutageDatabase
from billing.webhooks import budget_alerts, outbox
from billing.webhooks.limit_alerts import LimitWatch, Refusals
from tests.billing.webhooks.conftest import Hooks

Told = tuple[str, str, str, int]


async def look(hooks: Hooks) -> int:
    return await LimitWatch(hooks.books.database, Refusals()).once()


async def told(hooks: Hooks) -> list[Told]:
    """What arrived since the last call: scope, subject, period and percentage of each."""
    await hooks.send()
    found = [one.payload for one in hooks.receiver.got]
    hooks.receiver.got.clear()
    assert all(one["type"] == "budget.reached" for one in found)
    return sorted(
        (d["scope"], d["subject"], d["period"], d["percent"]) for d in (one["data"] for one in found)
    )


async def spend(hooks: Hooks, caller: Caller, nano_usd: int) -> None:
    await hooks.books.settle(await hooks.books.hold(caller, nano_usd), nano_usd)


async def budget(
    hooks: Hooks,
    caller: Caller,
    limit: int = 1000,
    period: PeriodKind = "day",
    scope: BudgetScope = "project",
    tag: str | None = None,
) -> BudgetState:
    of = {"workspace": caller.workspace_id, "key": caller.key_id}.get(scope, caller.project_id)
    made = Budgets(hooks.books.database, "test")
    return await made.set(scope, of, period, limit, tag=tag, now=hooks.books.now)


async def told_caller(hooks: Hooks) -> Caller:
    await hooks.webhooks.add(f"{hooks.receiver.url}/hook")
    return await hooks.books.new_caller()


PERIODS = {
    "hour": ("2026-11-20T12+0000", "2026-11-20T13:00:00+00:00"),
    "day": ("2026-11-20", "2026-11-21T00:00:00+00:00"),
    "week": ("2026-W47", "2026-11-23T00:00:00+00:00"),
    "month": ("2026-11", "2026-12-01T00:00:00+00:00"),
    "total": ("total", None),
}


@pytest.mark.parametrize(
    ("scope", "period"),
    [("workspace", "month"), ("project", "week"), ("key", "total"), ("person", "hour"), ("tag", "day")],
)
async def test_what_is_told_says_whose_budget_when_and_how_much(
    hooks: Hooks, scope: BudgetScope, period: PeriodKind
) -> None:
    caller = await told_caller(hooks)
    made = await budget(hooks, caller, 2 * 10**9, period, scope, "research" if scope == "tag" else None)
    asking = labelled(caller, {"user": "alice@example.com", "metadata": {"tags": ["research"]}})
    await spend(hooks, asking, 10**9 + 5)
    assert await look(hooks) == 1
    await hooks.send()
    (got,) = hooks.receiver.got
    subjects = {
        "workspace": caller.workspace_id,
        "key": caller.key_id,
        "person": asking.person,
        "tag": "research",
    }
    key, resets_at = PERIODS[period]
    assert got.payload["type"] == "budget.reached" and b"alice" not in got.body
    assert got.payload["data"] == {
        "workspace_id": caller.workspace_id,
        "workspace_name": (await hooks.books.accounts.find_workspace(caller.workspace_id)).name,
        "project_id": None if scope == "workspace" else caller.project_id,
        "budget_id": made.id,
        "scope": scope,
        "subject": subjects.get(scope, caller.project_id),
        "span": period,
        "period": key,
        "resets_at": resets_at,
        "percent": 50,
        "limit_nano_usd": 2 * 10**9,
        "limit_usd": "2.00",
        "used_nano_usd": 10**9 + 5,
        "used_usd": "1.000000005",
    }


async def test_each_percentage_is_told_once_when_it_is_reached_and_a_jump_tells_all_that_it_passed(
    hooks: Hooks,
) -> None:
    caller = await told_caller(hooks)
    await budget(hooks, caller, 1001, "hour")
    # 50% of 1001 is 500.5, and 80% is 800.8.
    for cost, expected in ((500, []), (1, [50]), (299, []), (1, [80]), (199, []), (1, [100])):
        await spend(hooks, caller, cost)
        await look(hooks)
        await look(hooks)
        found = await told(hooks)
        assert found == [("project", caller.project_id, "2026-11-20T12+0000", one) for one in expected]
    await hooks.later(3600)
    await spend(hooks, caller, 1001)
    assert await look(hooks) == 3
    assert [one[2:] for one in await told(hooks)] == [("2026-11-20T13+0000", one) for one in (50, 80, 100)]


async def test_a_refusal_is_no_percentage_and_neither_is_what_is_held(hooks: Hooks) -> None:
    caller = await told_caller(hooks)
    await budget(hooks, caller)
    await spend(hooks, caller, 499)
    hold = await hooks.books.hold(caller, 501)
    with pytest.raises(BudgetExceeded):
        await hooks.books.hold(caller, 1)
    assert await look(hooks) == 0
    await hooks.books.ledger.release(hold, now=hooks.books.now)
    assert await look(hooks) == 0


@pytest.mark.parametrize("limit", [0, 2**63 - 1])
async def test_a_budget_of_nothing_or_of_everything_is_never_reached(hooks: Hooks, limit: int) -> None:
    caller = await told_caller(hooks)
    hold = await hooks.books.hold(caller)
    await budget(hooks, caller, 1000)
    await hooks.books.at(hooks.books.now + timedelta(hours=1))
    await hooks.books.sweep()
    await hooks.books.settle(hold, 400)
    await budget(hooks, caller, limit)
    assert await look(hooks) == 0


async def test_usage_that_is_posted_twice_reaches_nothing_twice(
    hooks: Hooks, outage: FakeOutageDatabase
) -> None:
    caller = await told_caller(hooks)
    await budget(hooks, caller)
    hooks.books.ledger._allowance._nano_usd = 10_000
    outage.is_down = True
    await spend(hooks, caller, 450)
    outage.is_down = False
    (waiting,) = await hooks.books.spool.waiting(9)
    await hooks.books.ledger.replay_spool()
    # It would be 90%, had its charge not been taken back within the transaction.
    (event,) = await hooks.books.events()
    for _ in range(2):
        (posted,) = await hooks.books.database.write(partial(ledger_sql.post_all, events=[event]))
        assert not posted.is_new and event.event_id == waiting.event_id
        assert await look(hooks) == 0
    await spend(hooks, caller, 50)
    assert await look(hooks) == 1
    await hooks.books.database.write(partial(ledger_sql.post_all, events=[event]))
    assert await look(hooks) == 0
    assert [one[3] for one in await told(hooks)] == [50]


async def test_many_servers_that_look_while_money_is_spent_tell_each_once(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget_alerts, "AT_ONCE", 2)
    caller = await told_caller(hooks)
    await budget(hooks, caller, 3000)
    await budget(hooks, caller, 500, "hour", "person")
    persons = [labelled(caller, {"user": f"person {n}"}) for n in range(4)]

    async def spends(asking: Caller) -> None:
        for _ in range(10):
            await spend(hooks, asking, 50)

    async def looks() -> None:
        for _ in range(8):
            await look(hooks)

    await asyncio.gather(*map(spends, persons), *(looks() for _ in range(3)))
    await look(hooks)
    each = [("person", one.person, "2026-11-20T12+0000", p) for one in persons for p in (50, 80, 100)]
    assert await told(hooks) == sorted([*each, ("project", caller.project_id, "2026-11-20", 50)])


async def test_servers_that_find_the_same_at_the_same_time_tell_it_once(hooks: Hooks) -> None:
    caller = await told_caller(hooks)
    await budget(hooks, caller, 100, "day", "person")
    persons = [labelled(caller, {"user": f"person {n}"}) for n in range(10)]
    for one in persons:
        await spend(hooks, one, 100)
    announcing = partial(budget_alerts.announce, workspace_id=caller.workspace_id)
    counts = await asyncio.gather(*(hooks.books.database.write(announcing) for _ in range(6)))
    assert sum(counts) == 30
    assert await told(hooks) == sorted(
        ("person", str(one.person), "2026-11-20", percent) for one in persons for percent in (50, 80, 100)
    )


async def test_who_dies_before_it_is_committed_leaves_all_of_it_to_another(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await told_caller(hooks)
    await budget(hooks, caller)
    await spend(hooks, caller, 1000)
    write = outbox.write

    def dies(connection: Connection, *asked: Any, **kinds: Any) -> str:
        if kinds["data"]["percent"] == 80:
            raise RuntimeError("killed")
        return write(connection, *asked, **kinds)

    with monkeypatch.context() as patched:
        patched.setattr(outbox, "write", dies)
        with pytest.raises(RuntimeError, match="killed"):
            await look(hooks)
    assert await told(hooks) == []
    await look(hooks)
    assert [one[3] for one in await told(hooks)] == [50, 80, 100]


async def test_a_limit_that_is_lowered_reaches_more_and_one_that_is_raised_is_told_anew(hooks: Hooks) -> None:
    caller = await told_caller(hooks)
    await budget(hooks, caller)
    await spend(hooks, caller, 500)
    for limit, expected in (
        (1000, [50]),
        (900, []),
        (600, [80]),
        (400, [100]),
        (410, []),
        (600, []),
        (500, [100]),
    ):
        await budget(hooks, caller, limit)
        await look(hooks)
        assert [one[3] for one in await told(hooks)] == expected, limit
    await budget(hooks, caller, 2000)
    assert await look(hooks) == 0
    await spend(hooks, caller, 500)
    await look(hooks)
    assert [one[3] for one in await told(hooks)] == [50]


async def test_a_limit_that_is_changed_does_not_look_at_periods_that_are_over(hooks: Hooks) -> None:
    caller = await told_caller(hooks)
    await budget(hooks, caller, 1000, "hour")
    await spend(hooks, caller, 400)
    await hooks.later(3600)
    await budget(hooks, caller, 400, "hour")
    assert await look(hooks) == 0


async def test_a_removed_budget_is_told_no_more_and_its_requests_are_charged(hooks: Hooks) -> None:
    caller = await told_caller(hooks)
    made = await budget(hooks, caller)
    hold = await hooks.books.hold(caller, 1000)
    await remove(hooks, made)
    await hooks.books.settle(hold, 1000)
    assert await look(hooks) == 0
    assert await hooks.books.money(caller) == (1000, 0)


async def remove(hooks: Hooks, made: BudgetState) -> None:
    await Budgets(hooks.books.database, "test").remove(made.id, now=hooks.books.now)


async def test_of_very_many_persons_some_are_told_an_hour_and_a_project_at_once(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget_alerts, "AT_ONCE", 2)
    monkeypatch.setattr(budget_alerts, "MOST_AN_HOUR", 3)
    caller = await told_caller(hooks)
    await budget(hooks, caller, 100, "day", "person")
    persons = [labelled(caller, {"user": f"person {n}"}) for n in range(7)]
    for one in persons:
        await spend(hooks, one, 50)
    assert await look(hooks) == 4
    first = await told(hooks)
    await budget(hooks, caller, 1000, "day")
    await spend(hooks, caller, 500)
    assert await look(hooks) == 1
    assert [one[0] for one in await told(hooks)] == ["project"]
    await hooks.later(3601)
    assert await look(hooks) == 3
    assert sorted(first + await told(hooks)) == sorted(
        ("person", str(one.person), "2026-11-20", 50) for one in persons
    )


async def test_what_waited_until_a_day_after_its_period_is_told_no_more(hooks: Hooks) -> None:
    caller = await told_caller(hooks)
    await budget(hooks, caller, 100, "hour")
    for hours, expected in ((24.9, 3), (25.1, 0)):
        begin = hooks.books.clock.moment
        await spend(hooks, caller, 100)
        await hooks.books.at(begin + timedelta(hours=hours))
        assert await look(hooks) == expected
        assert len(await told(hooks)) == expected
    due = text("SELECT count(*) FROM budget_counters WHERE reached_percent > announced_percent")
    assert await hooks.books.database.read(lambda c: c.execute(due).scalar_one()) == 0


async def test_what_is_reached_is_the_highest_percentage_of_any_amounts(hooks: Hooks) -> None:
    caller = await told_caller(hooks)
    for limit, used, expected in ((3, 1, []), (3, 2, [50]), (2**63 - 1, 2**62, [50]), (1, 1, [50, 80, 100])):
        made = await budget(hooks, caller, limit)
        await spend(hooks, caller, used)
        await look(hooks)
        assert [one[3] for one in await told(hooks)] == expected, limit
        await remove(hooks, made)
