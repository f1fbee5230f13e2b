"""Budgets by period: held and charged with their workspace, never past any of them, proved by `reconcile`."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Connection, text

from billing.books.invariants import wrong_counters
from billing.caller import Caller
from billing.errors import BudgetExceeded, InvalidAccount, QuotaExceeded, UnknownAccount
from billing.labels import labelled
from billing.ledger import budget_settings, budgets
from billing.ledger.budget_settings import Budgets, BudgetScope, scope_of
from billing.ledger.budgets import BudgetState, Spender
from billing.periods import PeriodKind
from billing.store.database import FakeOutageDatabase
from tests.billing.collections.test_collection_locks import one_after_the_other

if TYPE_CHECKING:
    from tests.billing.conftest import Books

# 12:00 in UTC is 13:00 in Berlin.
ZONE = "Europe/Berlin"


def settings(books: Books) -> Budgets:
    return Budgets(books.database, "test")


async def with_budget(
    books: Books, limit: int, period: PeriodKind = "day", scope: BudgetScope = "project", zone: str = "UTC"
) -> Caller:
    caller = await books.new_caller()
    await books.accounts.change_workspace(caller.workspace_id, {"time_zone": zone})
    await budget(books, caller, limit, period, scope)
    return caller


async def budget(
    books: Books, caller: Caller, limit: int, period: PeriodKind = "day", scope: BudgetScope = "project"
) -> BudgetState:
    of = {"workspace": caller.workspace_id, "project": caller.project_id, "key": caller.key_id}[scope]
    return await settings(books).set(scope, of, period, limit, now=books.now)


async def spent(books: Books, caller: Caller) -> list[Any]:
    """Used and held of each budget in its present period, once everything was found to add up."""
    assert await books.differences() == []
    of = Spender(
        caller.workspace_id, caller.project_id, caller.key_id, caller.person, ",".join(caller.tags) or None
    )
    found = await books.database.read(partial(budgets.in_force, of=of))
    return [(one.used_nano_usd, one.held_nano_usd) for one in found]


@pytest.mark.parametrize("scope", ["workspace", "project", "key"])
async def test_a_budget_is_held_and_charged_with_its_workspace(books: Books, scope: BudgetScope) -> None:
    caller = await with_budget(books, 2500, scope=scope)
    hold = await books.hold(caller)
    assert await spent(books, caller) == [(0, 1000)]
    await books.settle(hold, 400)
    given_back = await books.hold(caller)
    await books.ledger.release(given_back, now=books.now)
    assert await spent(books, caller) == [(400, 0)]
    assert await books.money(caller) == (400, 0)


def asking(caller: Caller, person: str | None, *tags: str) -> Caller:
    return labelled(caller, {"user": person, "metadata": {"tags": list(tags)}})


async def label_budget(
    books: Books, caller: Caller, limit: int, period: PeriodKind = "day", tag: str | None = None
) -> BudgetState:
    scope: BudgetScope = "person" if tag is None else "tag"
    return await settings(books).set(scope, caller.project_id, period, limit, tag=tag, now=books.now)


async def test_what_may_land_is_refused_from_the_percentage_on_and_nothing_else(books: Books) -> None:
    caller = await books.new_caller()
    setting = partial(settings(books).set, "project", caller.project_id, "day", now=books.now)
    made = await setting(10_000, at_end="flex", land_from_percent=33)
    assert (made.at_end, made.land_from_percent) == ("flex", 33)
    with pytest.raises(BudgetExceeded, match=r"budget of \$0.00001 ") as none:
        await books.hold(caller, 10_001, may_land=True)
    assert not none.value.is_early and none.value.left_nano_usd == 10_000
    await books.hold(caller, 3299, may_land=True)
    # Less than 33% is committed before it.
    await books.settle(await books.hold(caller, 701, may_land=True), 1)
    with pytest.raises(BudgetExceeded) as early:
        await books.hold(caller, 1, may_land=True)
    found = early.value
    assert (found.at_end, found.is_early, found.left_nano_usd) == ("flex", True, 0)
    with pytest.raises(BudgetExceeded) as late:
        await books.hold(caller, 6701)
    assert not late.value.is_early and late.value.left_nano_usd == 6700
    await books.hold(caller, 6700)
    assert await spent(books, caller) == [(1, 9999)]


async def test_of_budgets_that_refuse_and_land_the_strictest_has_the_word(books: Books) -> None:
    caller = await books.new_caller()
    kinds: list[tuple[PeriodKind, str, int]] = [
        ("hour", "flex", 1),
        ("day", "model:a", 100),
        ("week", "refuse", 100),
    ]
    setting = partial(settings(books).set, "project", caller.project_id, now=books.now)
    for period, at_end, percent in kinds:
        await setting(period, 5000 if percent == 1 else 1000, at_end=at_end, land_from_percent=percent)
    await books.hold(caller, 500)
    said = {}
    for week, day in ((1000, 1000), (2000, 1000), (2000, 2000)):
        await setting("week", week)
        await setting("day", day)
        with pytest.raises(BudgetExceeded) as refused:
            await books.hold(caller, 500 if day == 2000 else 501, may_land=True)
        said[week, day] = (refused.value.at_end, refused.value.is_early)
    assert said == {
        (1000, 1000): ("refuse", False),
        (2000, 1000): ("model:a", False),
        (2000, 2000): ("flex", True),
    }


async def test_a_percentage_to_land_from_is_of_a_budget_that_lands(books: Books) -> None:
    caller = await books.new_caller()
    setting = partial(settings(books).set, "project", caller.project_id, "day", 1000, now=books.now)
    for wrong in (0, 101, -5):
        with pytest.raises(InvalidAccount, match=r"^land_from_percent: .* not between 1 and 100"):
            await setting(at_end="flex", land_from_percent=wrong)
    for refusing in ({}, {"at_end": "refuse"}):
        with pytest.raises(InvalidAccount, match=r"^land_from_percent: at_end is refuse"):
            await setting(land_from_percent=80, **refusing)
    assert await settings(books).listed(caller.workspace_id) == []
    assert (await setting(at_end="flex", land_from_percent=80)).land_from_percent == 80
    assert (await setting()).land_from_percent == 80
    assert (await setting(at_end="refuse")).land_from_percent == 100


async def test_each_person_of_a_project_has_its_budget(books: Books) -> None:
    caller = await books.new_caller()
    made = await label_budget(books, caller, 2500)
    assert (made.scope, made.subject, made.tag) == ("person", caller.project_id, None)
    assert (made.used_nano_usd, made.remaining_nano_usd) == (None, None)
    alice, bob, nobody = (asking(caller, name) for name in ("alice", "bob", None))
    await books.settle(await books.hold(alice, 2500), 2000)
    with pytest.raises(BudgetExceeded, match=r"^person quota exceeded") as refused:
        await books.hold(alice)
    assert refused.value.left_nano_usd == 500 and "alice" not in str(refused.value)
    hold = await books.hold(bob, 1000)
    assert await spent(books, alice) == [(2000, 0)]
    assert await spent(books, bob) == [(0, 1000)]
    await books.settle(await books.hold(nobody, 9000), 9000)
    # Its hold is gone: it counts where the event says.
    await books.at(books.now + timedelta(hours=1))
    await books.sweep()
    assert await spent(books, bob) == [(0, 0)]
    await books.settle(hold, 700)
    assert await spent(books, bob) == [(700, 0)]
    events = {(one.person, one.cost_nano_usd, bool(one.budgets)) for one in await books.events()}
    assert events == {(alice.person, 2000, True), (bob.person, 700, True), (None, 9000, False)}


async def test_a_tag_of_a_project_has_a_budget_and_every_one_of_a_request_has_to_have_room(
    books: Books,
) -> None:
    caller = await with_budget(books, 9000, scope="workspace")
    made = await label_budget(books, caller, 1500, "hour", "research")
    assert (made.scope, made.subject, made.tag, made.used_nano_usd) == (
        "tag",
        caller.project_id,
        "research",
        0,
    )
    await label_budget(books, caller, 3000, "total")
    both = asking(caller, "alice", "research", "nightly")
    await books.settle(await books.hold(both), 1000)
    assert sorted(await spent(books, both)) == [(1000, 0)] * 3
    with pytest.raises(BudgetExceeded, match=r"^tag research quota exceeded.*for each hour"):
        await books.hold(both)
    await books.hold(asking(caller, "alice", "nightly"), 2000)
    with pytest.raises(BudgetExceeded, match=r"^person quota exceeded.*in all"):
        await books.hold(asking(caller, "alice"))
    other = await books.accounts.create_project(caller.workspace_id, "other", now=books.now)
    _, token = await books.accounts.keys.create(other.id, "key", now=books.now)
    beside = await books.accounts.authenticate(token, now=books.now)
    await books.hold(asking(beside, "alice", "research"), 5000)
    removed = await settings(books).remove(made.id, now=books.now)
    assert removed.tag == "research"
    await books.hold(asking(caller, None, "research"))
    assert await books.differences() == []


async def test_labels_survive_an_outage_and_their_budgets_are_rebuilt(
    books: Books, outage: FakeOutageDatabase
) -> None:
    caller = await books.new_caller()
    await label_budget(books, caller, 10_000)
    await label_budget(books, caller, 10_000, tag="research")
    books.ledger._allowance._nano_usd = 10_000
    alice = asking(caller, "alice", "research", "b")
    outage.is_down = True
    await books.settle(await books.hold(alice), 900)
    outage.is_down = False
    await books.ledger.replay_spool()
    assert await spent(books, alice) == [(900, 0), (900, 0)]
    (event,) = await books.events()
    assert (event.person, event.tags, event.offline) == (alice.person, "b,research", True)
    changing = text("UPDATE budget_counters SET posted_nano_usd = 7")
    await books.database.write(lambda c: c.execute(changing))
    assert len((await books.reader().reconcile(books.spool, full=True)).differences) == 2
    await books.reader().rebuild(actor="test", now=books.now)
    assert await spent(books, alice) == [(900, 0), (900, 0)]


async def test_what_a_project_asks_of_its_requests_is_set_noted_and_known_to_its_callers(
    books: Books,
) -> None:
    caller = await books.new_caller()
    assert (caller.person_required, caller.allowed_tags) == (False, None)
    wanted = {"person_required": True, "allowed_tags": ["research", "nightly"]}
    changed = await books.accounts.change_project(caller.project_id, wanted)
    assert (changed.person_required, changed.allowed_tags) == (True, ("nightly", "research"))
    known = await books.accounts.caller_of(caller.key_id, now=books.now)
    assert (known.person_required, known.allowed_tags) == (True, ("nightly", "research"))
    assert asking(known, "alice").person == asking(caller, "alice").person
    (noted,) = [one for one in await books.reader().audit_log() if one.action == "project.change"]
    assert noted.details["allowed_tags"] == [None, ["nightly", "research"]]
    none = await books.accounts.change_project(caller.project_id, {"allowed_tags": []})
    assert none.allowed_tags == ()
    for tags in (["a b"], [f"t{n}" for n in range(101)]):
        with pytest.raises(InvalidAccount, match="allowed_tags"):
            await books.accounts.change_project(caller.project_id, {"allowed_tags": tags})
    scopes: tuple[tuple[BudgetScope, str | None], ...] = (("tag", None), ("tag", "*"), ("person", "research"))
    for scope, tag in scopes:
        with pytest.raises(InvalidAccount, match="tag"):
            await settings(books).set(scope, caller.project_id, "day", 1, tag=tag, now=books.now)


async def test_others_of_the_workspace_are_not_counted(books: Books) -> None:
    caller = await with_budget(books, 1000)
    other = await books.accounts.create_project(caller.workspace_id, "other", now=books.now)
    _, token = await books.accounts.keys.create(other.id, "key", now=books.now)
    beside = await books.accounts.authenticate(token, now=books.now)
    await books.settle(await books.hold(beside), 1000)
    await books.settle(await books.hold(caller), 1000)
    assert await spent(books, caller) == [(1000, 0)]
    assert await spent(books, beside) == []


@pytest.mark.parametrize("period", ["hour", "day", "week", "month", "total"])
async def test_a_refusal_names_the_budget_and_when_it_resets_and_holds_nothing(
    books: Books, period: PeriodKind
) -> None:
    caller = await with_budget(books, 1500, period, zone=ZONE)
    await books.hold(caller)
    with pytest.raises(QuotaExceeded, match=r"^project quota exceeded") as refused:
        await books.hold(caller)
    resets = {
        "hour": "2026-11-20T14:00:00+01:00",
        "day": "2026-11-21T00:00:00+01:00",
        "week": "2026-11-23T00:00:00+01:00",
        "month": "2026-12-01T00:00:00+01:00",
    }
    said = f"for each {period}, which resets at {resets[period]} ({ZONE})," if period in resets else "in all"
    assert f"budget of $0.0000015 {said}" in str(refused.value)
    assert refused.value.left_nano_usd == 500
    assert await spent(books, caller) == [(0, 1000)]
    assert (await books.money(caller))[1] == 1000


async def test_the_next_period_begins_with_nothing_and_a_request_counts_in_the_one_that_it_began_in(
    books: Books,
) -> None:
    caller = await with_budget(books, 1000, "hour")
    hold = await books.hold(caller)
    await books.at(books.now + timedelta(hours=1))
    assert await spent(books, caller) == [(0, 0)]
    await books.settle(await books.hold(caller), 900)
    await books.settle(hold, 800)
    assert await spent(books, caller) == [(900, 0)]
    await books.at(books.now)
    assert await spent(books, caller) == [(800, 0)]


async def test_a_day_is_that_of_the_workspaces_time_zone(books: Books) -> None:
    caller = await with_budget(books, 1000, zone=ZONE)
    await books.at(datetime(2026, 11, 20, 22, 59, tzinfo=UTC))
    await books.settle(await books.hold(caller), 1000)
    with pytest.raises(BudgetExceeded):
        await books.hold(caller)
    await books.at(datetime(2026, 11, 20, 23, 0, tzinfo=UTC))
    await books.settle(await books.hold(caller), 1000)
    assert await spent(books, caller) == [(1000, 0)]


async def test_every_budget_of_a_request_has_to_have_room(books: Books) -> None:
    caller = await with_budget(books, 5000, "month", "workspace")
    await budget(books, caller, 2700, "day", "project")
    await budget(books, caller, 1800, "hour", "key")
    await books.hold(caller)
    with pytest.raises(BudgetExceeded, match=r"^key quota"):
        await books.hold(caller)
    await books.at(books.now + timedelta(hours=1))
    await books.settle(await books.hold(caller))
    with pytest.raises(BudgetExceeded, match=r"^project quota"):
        await books.hold(caller, 1350)
    assert sorted(await spent(books, caller)) == [(400, 0), (400, 1000), (400, 1000)]


async def test_what_many_requests_at_once_hold_stays_within_a_budget(books: Books) -> None:
    caller = await with_budget(books, 5000)
    asked = await asyncio.gather(*(books.hold(caller) for _ in range(12)), return_exceptions=True)
    holds = [one for one in asked if not isinstance(one, BaseException)]
    assert len(holds) == 5
    await asyncio.gather(*(books.settle(hold, 1000) for hold in holds))
    assert await spent(books, caller) == [(5000, 0)]


async def test_what_exceeds_the_hold_is_charged_as_far_as_the_budget_is_early(books: Books) -> None:
    caller = await with_budget(books, 1600)
    settled = await books.settle(await books.hold(caller), 2000)
    assert settled.written_off_nano_usd == 400
    assert await spent(books, caller) == [(1600, 0)]


async def test_an_event_whose_hold_is_gone_counts_in_the_present_period_as_far_as_there_is_room(
    books: Books,
) -> None:
    caller = await with_budget(books, 1600, "hour")
    hold = await books.hold(caller)
    await books.at(books.now + timedelta(hours=1))
    await books.sweep()
    settled = await books.settle(hold, 1800)
    assert settled.written_off_nano_usd == 200
    assert await spent(books, caller) == [(1600, 0)]
    await books.at(books.now)
    assert await spent(books, caller) == [(0, 0)]


async def test_an_event_that_is_posted_twice_is_counted_once(books: Books) -> None:
    caller = await with_budget(books, 5000)
    hold = await books.hold(caller)
    await books.settle(hold, 400)
    await books.settle(hold, 400)
    assert await spent(books, caller) == [(400, 0)]


async def test_an_allowance_is_counted_in_full_once_the_ledger_is_back(
    books: Books, outage: FakeOutageDatabase
) -> None:
    caller = await with_budget(books, 1000)
    books.ledger._allowance._nano_usd = 10_000
    outage.is_down = True
    for _ in range(2):
        await books.settle(await books.hold(caller), 900)
    outage.is_down = False
    await books.ledger.replay_spool()
    assert await spent(books, caller) == [(1800, 0)]
    with pytest.raises(BudgetExceeded):
        await books.hold(caller)


async def test_a_rotated_key_goes_on_with_the_budget_of_the_first(books: Books) -> None:
    caller = await with_budget(books, 1500, scope="key")
    await books.hold(caller)
    _, token, _ = await books.accounts.keys.rotate(caller.key_id, overlap=timedelta(hours=1), now=books.now)
    rotated = await books.accounts.authenticate(token, now=books.now)
    with pytest.raises(BudgetExceeded):
        await books.hold(rotated)
    raised = await budget(books, rotated, 2500, scope="key")
    assert (raised.held_nano_usd, raised.remaining_nano_usd) == (1000, 1500)
    await books.hold(rotated)
    assert await spent(books, rotated) == [(0, 2000)]


async def test_a_budget_counts_from_when_it_is_set_and_no_longer_than_until_it_is_removed(
    books: Books,
) -> None:
    caller = await books.new_caller()
    before = await books.hold(caller)
    made = await budget(books, caller, 1000)
    await books.settle(before, 700)
    running = await books.hold(caller)
    assert await spent(books, caller) == [(0, 1000)]
    removed = await settings(books).remove(made.id, now=books.now)
    assert removed.held_nano_usd == 1000
    await books.hold(caller)
    await books.settle(running, 1000)
    assert await spent(books, caller) == []
    again = await budget(books, caller, 1000)
    assert (again.used_nano_usd, again.held_nano_usd) == (0, 0)
    flag = text("SELECT has_budgets FROM workspaces WHERE id = :id")
    read = partial(lambda c, id: c.execute(flag, {"id": id}).scalar_one(), id=caller.workspace_id)
    assert await books.database.read(read)
    await settings(books).remove(again.id, now=books.now)
    assert not await books.database.read(read)
    with pytest.raises(UnknownAccount):
        await settings(books).remove(again.id, now=books.now)


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_two_operators_that_remove_one_budget_remove_it_once(books: Books) -> None:
    caller = await books.new_caller()
    made = await budget(books, caller, 1000)
    remove = partial(budget_settings._remove, budget_id=made.id, actor="test", now=books.now)
    removed, refused = await one_after_the_other(books, remove, remove)
    assert removed.id == made.id
    assert isinstance(refused, UnknownAccount)
    entries = await books.reader().audit_log(workspace=caller.workspace_id)
    assert [one.action for one in entries if "budget" in one.action] == ["budget.set", "budget.remove"]


async def test_changes_are_in_the_audit_log_and_lists_have_them(books: Books) -> None:
    caller = await with_budget(books, 1000)
    changed = await budget(books, caller, 2000)
    await settings(books).remove(changed.id, now=books.now)
    entries = await books.reader().audit_log(workspace=caller.workspace_id)
    noted = [(one.action, one.details["limit_nano_usd"]) for one in entries if "budget" in one.action]
    assert noted == [
        ("budget.set", [None, 1000]),
        ("budget.set", [1000, 2000]),
        ("budget.remove", [2000, None]),
    ]
    mine, other = await budget(books, caller, 5), await with_budget(books, 7)
    listed = await settings(books).listed(caller.workspace_id)
    assert [(one.id, one.limit_nano_usd) for one in listed] == [(mine.id, 5)]
    assert {one.workspace_id for one in await settings(books).listed()} == {
        caller.workspace_id,
        other.workspace_id,
    }


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_more_budgets_are_listed_than_a_statement_has_parameters(books: Books) -> None:
    caller = await with_budget(books, 1000)
    await books.hold(caller)
    many = text(
        "INSERT INTO budgets SELECT 'bud_' || n, workspace_id, scope, 'prj_' || n, period, limit_nano_usd, "
        "created_at + interval '1 second' FROM budgets, generate_series(1, 32768) n"
    )
    await books.database.write(lambda c: c.execute(many) and None)
    first, *others = await settings(books).listed()
    assert (first.subject, first.held_nano_usd) == (caller.project_id, 1000)
    assert {one.subject for one in others} == {f"prj_{n}" for n in range(1, 32769)}


def test_a_budget_is_of_one_owner_and_that_of_persons_or_of_a_tag_is_a_projects() -> None:
    assert scope_of({"workspace": None, "project": "p"}, person=True, tag=None) == ("person", "p")
    assert scope_of({"project": "p"}, person=False, tag="t") == ("tag", "p")
    assert scope_of({"key": "k"}, person=False, tag=None) == ("key", "k")
    for scope, is_person, tag in (("key", True, None), ("workspace", False, "t"), ("project", True, "t")):
        with pytest.raises(InvalidAccount, match="either"):
            scope_of({scope: "x"}, person=is_person, tag=tag)
    for named in ({}, {"key": None}, {"workspace": "w", "project": "p"}):
        with pytest.raises(InvalidAccount, match="one of"):
            scope_of(named, person=False, tag=None)


async def test_settings_that_cannot_be_are_refused(books: Books) -> None:
    caller = await books.new_caller()
    with pytest.raises(InvalidAccount, match="limit_nano_usd"):
        await budget(books, caller, -1)
    with pytest.raises(InvalidAccount, match="time_zone"):
        await books.accounts.change_workspace(caller.workspace_id, {"time_zone": "Mars/Olympus"})
    with pytest.raises(UnknownAccount):
        await settings(books).set("project", "nobody", "day", 1, now=books.now)


async def test_old_periods_are_deleted_once_nothing_is_held_in_them(books: Books) -> None:
    caller = await with_budget(books, 1000, "hour")
    hold = await books.hold(caller)
    await books.at(books.now + timedelta(days=42))
    assert await books.database.write(budgets.forget_old) == 0
    await books.settle(hold, 100)
    await books.settle(await books.hold(caller), 100)
    assert await books.database.write(budgets.forget_old) == 1
    assert await books.database.write(budgets.forget_old) == 0
    assert await spent(books, caller) == [(100, 0)]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_periods_in_which_nothing_is_held_are_not_summed(books: Books) -> None:
    caller = await with_budget(books, 5000, "total")
    await books.hold(caller)
    await budget(books, caller, 5000, "day")

    def steps(connection: Connection) -> int:
        count = 0

        def step() -> None:
            nonlocal count
            count += 1

        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        driver.set_progress_handler(step, 1)
        try:
            assert wrong_counters(connection, full=False) == []
        finally:
            driver.set_progress_handler(None, 1)
        return count

    before = await books.database.read(steps)
    idle = text(
        "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 1000) INSERT INTO "
        "budget_counters SELECT budget_id || n, budget_id, 0, 0, began_at, ends_at, 0, 0 FROM budget_counters, n"
    )
    await books.database.write(lambda c: c.execute(idle) and None)
    # To read and skip a row takes SQLite three steps, to sum it seventy.
    assert await books.database.read(steps) - before < 10 * 1000


@pytest.mark.parametrize("figure", ["posted", "held"])
async def test_a_count_that_somebody_changed_is_named_and_rebuilt(books: Books, figure: str) -> None:
    caller = await with_budget(books, 5000)
    await books.settle(await books.hold(caller), 400)
    await books.hold(caller)
    changing = text(f"UPDATE budget_counters SET {figure}_nano_usd = {figure}_nano_usd + 7")
    await books.database.write(lambda c: c.execute(changing))
    for full in (False, True):
        found = (await books.reader().reconcile(books.spool, full=full)).differences
        # What was posted takes reading all events.
        assert [(one.table, one.key[1], one.difference_nano_usd) for one in found] == (
            [("budget_counters", figure, 7)] if full or figure == "held" else []
        )
    rebuilt = await books.reader().rebuild(actor="test", now=books.now)
    assert [one.figure.split(" of ")[0] for one in rebuilt] == [figure]
    assert await spent(books, caller) == [(400, 1000)]


async def test_what_becomes_of_a_chat_at_the_end_is_kept_until_it_is_changed(books: Books) -> None:
    caller = await with_budget(books, 1000)

    async def after(at_end: str | None) -> str:
        of = caller.project_id
        return (await settings(books).set("project", of, "day", 900, now=books.now, at_end=at_end)).at_end

    assert [await after(each) for each in (None, "model:org/small-1.5b", None, "flex", "refuse")] == [
        *("refuse", "model:org/small-1.5b", "model:org/small-1.5b"),
        *("flex", "refuse"),
    ]
    for wrong in ("", "stop", "model:", "model: x", "model:" + "m" * 128, "flex\n", "priority"):
        with pytest.raises(InvalidAccount, match="at_end"):
            await after(wrong)
    actions = await books.database.read(
        lambda c: c.execute(text("SELECT details FROM audit_log WHERE action = 'budget.set'")).scalars().all()
    )
    assert sum("at_end" in str(details) for details in actions) == 3


@pytest.mark.parametrize("strict", [0, 1])
async def test_a_refusal_says_what_becomes_of_it_and_one_that_refuses_has_the_last_word(
    books: Books, strict: int
) -> None:
    caller = await with_budget(books, 500)
    ways = ["model:a", "flex"]

    async def refusal() -> str:
        for period, at_end in zip(("day", "month"), ways, strict=True):
            of = caller.project_id
            await settings(books).set("project", of, period, 500, now=books.now, at_end=at_end)  # type: ignore[arg-type]
        with pytest.raises(BudgetExceeded) as refused:
            await books.hold(caller)
        return refused.value.at_end

    assert await refusal() in ways
    ways[strict] = "refuse"
    assert await refusal() == "refuse"
    assert await spent(books, caller) == [(0, 0), (0, 0)]
