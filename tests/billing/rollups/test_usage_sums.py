"""Sums of usage are what the events add up to: for every period, grouped by whatever, and whoever wrote the events."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, insert, select, text
from sqlalchemy.event import listen

from billing.books.books import Books as Reader
from billing.books.saving import DIMENSIONS
from billing.books.usage_report import usage
from billing.caller import Caller
from billing.ledger import ledger_sql
from billing.rollups.event_sums import sums_of
from billing.rollups.usage_sums import LABELS, UnknownSum, label_of, parts_of
from billing.store.rollup_tables import SUMS, label_days, label_months
from billing.store.schema import usage_events
from billing.usage import UsageEvent
from tests.billing.conftest import event_row

if TYPE_CHECKING:
    from tests.billing.conftest import Books

FIRST = datetime(2026, 8, 30, 12, 0, tzinfo=UTC)
MOMENTS = st.datetimes(datetime(2024, 1, 28), datetime(2024, 4, 3), timezones=st.just(UTC)) | st.sampled_from(
    [datetime(2024, month, 1, tzinfo=UTC) for month in (2, 3)]
)


@given(since=st.none() | MOMENTS, until=st.none() | MOMENTS, moment=MOMENTS, by_day=st.booleans())
@settings(max_examples=100)
def test_the_parts_of_a_period_have_each_of_its_moments_once(
    since: datetime | None, until: datetime | None, moment: datetime, by_day: bool
) -> None:
    parts = parts_of(since, until, by_day=by_day)
    day, in_parts = moment.date(), 0
    for days in (*parts.days, *([parts.months] if parts.months else [])):
        in_parts += (days.since is None or days.since <= day) and (days.until is None or day < days.until)
    in_parts += sum(edge.since <= moment < edge.until for edge in parts.edges)
    assert in_parts == int((since is None or since <= moment) and (until is None or moment < until))
    if parts.months is not None:
        assert not by_day
        assert {day.day for day in (parts.months.since, parts.months.until) if day} <= {1}


def random_event(rng: random.Random, caller: Caller, version: int) -> dict[str, Any]:
    moment = FIRST + timedelta(seconds=rng.randrange(75 * 86_400))
    if rng.random() < 0.2:
        moment = moment.replace(hour=0, minute=0, second=0)
    cost, prompt = rng.randrange(10**6), rng.randrange(1000)
    return event_row(
        caller,
        moment,
        model_id=rng.choice(["model-a", "model-b"]),
        pricing_version=version,
        prompt_tokens=prompt,
        completion_tokens=rng.randrange(1000),
        cached_tokens=rng.randrange(100),
        subtotal_nano_usd=cost,
        cost_nano_usd=cost,
        written_off_nano_usd=rng.choice([0, 0, cost // 2]),
        # Charged later than it was settled, or by a release that did not say when.
        month=rng.choice([None, f"{moment:%Y-%m}", "2026-12"]),
        original_tokens=rng.choice([None, prompt + 7]),
        saved_nano_usd=rng.choice([0, 5000, -300]),
        compression_nano_usd=rng.choice([0, 70]),
        route=rng.choice([None, "chat", "batch:embeddings"]),
        person=rng.choice([None, "psn_0", "psn_1"]),
        tags=rng.choice([None, "a", "a,b.c", "b.c,d"]),
    )


def added_up(
    events: Sequence[dict[str, Any]], by: Sequence[str], names: dict[str, str]
) -> dict[tuple[str, ...], list[int]]:
    sums: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0] * len(SUMS))
    labelled = [
        (event, label)
        for event in events
        for label in (
            [event["person"]]
            if "person" in by
            else (event["tags"] or "").split(",")
            if "tag" in by
            else ["all"]
        )
        if label
    ]
    for event, label in labelled:
        settled, lost = event["settled_at"], event["written_off_nano_usd"]
        of = {
            "day": f"{settled:%Y-%m-%d}",
            "month": event["month"] or f"{settled:%Y-%m}",
            "model": event["model_id"],
            "route": event["route"] or "",
            "person": label,
            "tag": label,
            **{name: names[event[f"{name}_id"]] for name in ("workspace", "project", "key")},
        }
        saved = event["saved_nano_usd"]
        amounts = (
            1,
            event["prompt_tokens"],
            event["completion_tokens"],
            event["cached_tokens"],
            event["cost_nano_usd"] - lost,
            lost,
            (event["original_tokens"] or event["prompt_tokens"]) - event["prompt_tokens"],
            saved if not lost or saved < 0 else 0,
            event["compression_nano_usd"],
        )
        key = tuple(of[name] for name in by)
        sums[key] = [one + other for one, other in zip(sums[key], amounts, strict=True)]
    return dict(sums)


async def test_sums_are_those_of_the_events_for_every_period_and_group(books: Books) -> None:
    rng = random.Random(15)
    callers = [await books.new_caller() for _ in range(2)]
    events = [random_event(rng, rng.choice(callers), books.pricing_version) for _ in range(400)]
    await books.database.write(lambda c: c.execute(insert(usage_events), events))
    names = {
        row[0]: row[1]
        for table in ("workspaces", "projects", "api_keys")
        for row in await books.database.read(
            lambda c, table=table: c.execute(text(f"SELECT id, name FROM {table}")).all()
        )
    }

    async def check(
        by: list[Any], since: datetime | None, until: datetime | None, caller: Caller | None
    ) -> None:
        wanted: dict[str, str] = (
            {} if caller is None else {"key_id": caller.key_id, "project": caller.project_id}
        )
        if label_of(by) is not None:
            wanted.pop("key_id", None)
        read = partial(usage, by=by, since=since, until=until, **wanted)
        found = await books.database.read(read)
        in_it = [
            event
            for event in events
            if (since is None or since <= event["settled_at"])
            and (until is None or event["settled_at"] < until)
            and (caller is None or event["key_id"] == caller.key_id)
        ]
        rows = {
            tuple(line.group[name] for name in by): [getattr(line, name) for name in SUMS] for line in found
        }
        assert rows == (added_up(in_it, by, names) or ({} if by else {(): [0] * len(SUMS)}))
        assert len(rows) == len(found) or "key" in by or "project" in by

    for number in range(60):
        by = rng.sample(DIMENSIONS, rng.randrange(4))
        if number % 3 == 0:
            by = [rng.choice(LABELS), *rng.sample(("workspace", "day", "month"), rng.randrange(3))]
        elif label_of(by) is not None:
            continue
        # Names of projects and keys are the same in both workspaces here.
        by = [name for name in by if name not in ("project", "key")]
        ends = sorted(
            FIRST + timedelta(seconds=rng.randrange(-9, 80) * 86_400 + rng.choice([0, 43_200, 5]))
            for _ in "12"
        )
        since, until = rng.choice([ends, [None, ends[1]], [ends[0], None], [None, None]])
        await check(by, since, until, rng.choice([None, callers[number % 2]]))


async def test_most_expensive_persons_come_first(books: Books) -> None:
    caller = await books.new_caller()
    costs = {"psn_a": 3, "psn_b": 9, "psn_c": 5}
    rows = [event_row(caller, FIRST, cost_nano_usd=cost, person=name) for name, cost in costs.items()]
    await books.database.write(lambda c: c.execute(insert(usage_events), rows))
    found = await books.database.read(partial(usage, by=["person"], limit=2))
    assert [(line.group["person"], line.cost_nano_usd) for line in found] == [("psn_b", 9), ("psn_c", 5)]


async def test_an_event_that_names_nobody_and_nothing_writes_no_sum_by_label(books: Books) -> None:
    caller = await books.new_caller()
    await books.settle(await books.hold(caller))
    rows = [event_row(caller, FIRST, cost_nano_usd=5, tags=tags) for tags in (None, "a,b")]
    await books.database.write(lambda c: c.execute(insert(usage_events), rows))
    for table in (label_days, label_months):
        found = await books.database.read(
            lambda c, table=table: c.execute(select(table.c.kind, table.c.label, table.c.requests)).all()
        )
        assert sorted(found) == [("tag", "a", 1), ("tag", "b", 1)]


@pytest.mark.parametrize("by", [["person", "tag"], ["tag", "key"], ["model", "person"], ["route", "tag"]])
async def test_sums_by_label_that_there_are_not_are_refused(books: Books, by: list[Any]) -> None:
    with pytest.raises(UnknownSum, match="by workspace, project, day and month besides, not by"):
        await books.usage(by)
    with pytest.raises(UnknownSum, match="not by key"):
        await books.database.read(partial(usage, by=["person"], key_id="key"))


async def test_an_event_that_was_there_counts_once(books: Books) -> None:
    caller = await books.new_caller()
    await asyncio.gather(*(settled_twice(books, caller) for _ in range(20)))
    (line,) = await books.usage(["workspace"])
    assert (line.requests, line.cost_nano_usd) == (20, 20 * 400)
    assert await books.money(caller) == (20 * 400, 0)


async def settled_twice(books: Books, caller: Caller) -> None:
    hold = await books.hold(caller)
    await asyncio.gather(books.settle(hold), books.settle(hold))


async def test_a_replay_of_what_is_in_the_ledger_adds_nothing_up(books: Books) -> None:
    caller = await books.new_caller()
    await books.settle(await books.hold(caller))
    (event,) = await books.events()
    assert isinstance(event, UsageEvent)
    (posting,) = await books.database.write(partial(ledger_sql.post_all, events=[event]))
    assert not posting.is_new
    (line,) = await books.usage(["day", "route"])
    assert (line.requests, line.cost_nano_usd) == (1, 400)


async def test_a_sum_that_somebody_changed_is_named_and_can_be_made_anew(books: Books) -> None:
    caller = await books.new_caller()
    await books.settle(await books.hold(caller))
    for table in ("usage_days", "usage_months"):
        change = text(f"UPDATE {table} SET requests = 2, cost_nano_usd = cost_nano_usd + 5")
        await books.database.write(lambda c, change=change: c.execute(change))
    found = await Reader(books.database).reconcile(books.spool)
    assert not found.is_clean and found.differences == []
    assert [(one.table, one.month, one.stored["events"], one.due["events"]) for one in found.wrong_sums] == [
        ("usage_days", "2026-11", 2, 1),
        ("usage_months", "2026-11", 2, 1),
    ]
    done = await Reader(books.database).rebuild(actor="test", now=books.now)
    assert {"usage_days 2026-11", "usage_months 2026-11"} <= {one.figure for one in done}
    assert (await Reader(books.database).reconcile(books.spool)).wrong_sums == ()
    (line,) = await books.usage(["day"])
    assert (line.requests, line.cost_nano_usd) == (1, 400)


async def test_a_wrong_number_of_tokens_is_found_by_a_full_proof_and_made_anew(books: Books) -> None:
    caller = await books.new_caller()
    await books.settle(await books.hold(caller))
    for table in ("usage_days", "usage_months"):
        change = text(f"UPDATE {table} SET prompt_tokens = prompt_tokens + 3, model_id = 'model-b'")
        await books.database.write(lambda c, change=change: c.execute(change))
    reader = Reader(books.database)
    found = await reader.reconcile(books.spool)
    # Both say the same, and the number of requests and their money are right.
    assert (found.wrong_sums, found.wrong_rows, found.unequal_sums) == ((), (), ())
    found = await reader.reconcile(books.spool, full=True)
    rows = {(one.table, one.key[4]): one for one in found.wrong_rows}
    assert len(rows) == 4 and rows["usage_days", "model-b"].stored["prompt_tokens"] == 13
    assert rows["usage_months", "model-a"].due["requests"] == 1
    await reader.rebuild(actor="test", now=books.now)
    assert (await reader.reconcile(books.spool, full=True)).wrong_rows == ()
    (line,) = await books.usage(["day", "model"])
    assert (line.prompt_tokens, line.group["model"]) == (10, "model-a")


@pytest.mark.parametrize("change", ["saved_nano_usd = 5000", "key_id = 'other'", "month = '2026-12'"])
@pytest.mark.parametrize("table", ["usage_days", "usage_months"])
async def test_days_and_months_that_say_different_things_are_found_by_every_proof(
    books: Books, table: str, change: str
) -> None:
    caller = await books.new_caller()
    await books.settle(await books.hold(caller))
    assert (await Reader(books.database).reconcile(books.spool)).unequal_sums == ()
    await books.database.write(lambda c: c.execute(text(f"UPDATE {table} SET {change}")))
    found = await Reader(books.database).reconcile(books.spool)
    assert not found.is_clean
    assert {one.workspace_id for one in found.unequal_sums} == {caller.workspace_id}


async def test_sums_that_were_lost_altogether_are_made_anew(books: Books) -> None:
    caller = await books.new_caller()
    await books.settle(await books.hold(caller))
    for table in ("usage_days", "usage_months"):
        await books.database.write(lambda c, table=table: c.execute(text(f"DELETE FROM {table}")))
    reader = Reader(books.database)
    assert len((await reader.reconcile(books.spool)).wrong_sums) == 2
    await reader.rebuild(actor="test", now=books.now)
    found = await reader.reconcile(books.spool, full=True)
    assert (found.wrong_sums, found.wrong_rows, found.differences) == ((), (), [])


async def test_events_that_are_not_proven_yet_are_found_by_their_ids(books: Books) -> None:
    """Whatever they are grouped by: a scan of the others takes minutes where there are millions."""
    if books.url.startswith("postgresql"):
        pytest.skip("it plans by what a table holds, and this one is empty")

    def plans(connection: Connection) -> list[str]:
        statements: list[tuple[str, Any]] = []
        listen(connection, "before_cursor_execute", lambda *given: statements.append(given[2:4]))
        sums_of(connection, usage_events.c.event_id >= "01")
        ((statement, parameters),) = statements
        return [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]

    assert any(
        "SEARCH usage_events USING INDEX" in step and "(event_id>?)" in step
        for step in await books.database.read(plans)
    )
