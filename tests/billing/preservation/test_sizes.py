"""Sizes under control, on each database: every sample is added once, steps are logged, and keys tell of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from billing.accounts import audit_log
from billing.accounts.accounts import Accounts
from billing.caller import Caller
from billing.preservation.checks import PreservationStore
from billing.preservation.size_control import START, SizeControl
from billing.preservation.sizes import ACTION, ACTOR, Bound, SizedFor, SizeStore
from tests.billing.conftest import NOW, PEPPER
from tests.billing.preservation.test_checks import check_of

if TYPE_CHECKING:
    from tests.billing.conftest import Books

WITHIN = '{"within":0.05}'
BOUND = Bound("nats", 0.05)


async def project_of(books: Books, compression: str = WITHIN) -> tuple[Caller, SizedFor]:
    caller = await books.new_caller()
    await books.accounts.change_project(caller.project_id, {"compression": compression})
    return caller, SizedFor(caller.workspace_id, caller.project_id, compression, BOUND)


async def step_of(books: Books, caller: Caller) -> float | None:
    project = await books.accounts.find_project(caller.project_id)
    # With nothing remembered, as another server begins.
    fresh = await Accounts(books.database, pepper=PEPPER).caller_of(caller.key_id, now=NOW)
    assert fresh.size_step == project.size_step
    return project.size_step


async def steps(books: Books, caller: Caller) -> list[dict[str, Any]]:
    found = await books.database.read(partial(audit_log.entries, subject=caller.project_id))
    entries = [one for one in found if one.action == ACTION]
    assert all((one.actor, one.workspace_id) == (ACTOR, caller.workspace_id) for one in entries)
    return [dict(one.details) for one in entries]


async def test_a_sample_moves_the_size_of_its_project_and_a_step_is_logged(books: Books) -> None:
    caller, sized = await project_of(books)
    assert await step_of(books, caller) is None
    store = PreservationStore(books.database)
    assert await store.record(check_of(caller, nats_per_token=0.01), sized, NOW)
    assert await step_of(books, caller) == START and await steps(books, caller) == []
    assert await store.record(check_of(caller, nats_per_token=4.0), sized, NOW)
    after = SizeControl().after(0.01, 0.05).after(4.0, 0.05)
    assert await step_of(books, caller) == after.step < START
    (step,) = await steps(books, caller)
    assert step == {
        "conversations_by_keep": [{"0.99": 1.0}, {"whole": 1.0}],
        "samples": [1, 2],
        "mean": [0.01, after.mean],
        "measure": "nats",
        "within": 0.05,
    }


async def test_a_check_that_is_written_twice_is_one_sample(books: Books) -> None:
    caller, sized = await project_of(books)
    store, check = PreservationStore(books.database), check_of(caller, nats_per_token=0.5)
    assert await store.record(check, sized, NOW)
    assert not await store.record(check, sized, NOW)
    account = await SizeStore(books.database).add_whole(sized, 0, NOW)
    assert account == SizeControl().after(0.5, 0.05)


async def test_chats_left_whole_and_agreement_are_samples_too(books: Books) -> None:
    caller, sized = await project_of(books)
    sized = replace(sized, bound=Bound("agreement", 0.02))
    store = SizeStore(books.database)
    check = check_of(caller, scored_tokens=40, agreeing_tokens=38, nats_per_token=7.0)
    await PreservationStore(books.database).record(check, sized, NOW)
    found = await store.add_whole(sized, 2, NOW)
    assert found is not None
    assert (found.samples, round(found.total, 9)) == (3, 0.05)


async def test_samples_of_servers_at_once_are_all_added(books: Books) -> None:
    _, sized = await project_of(books)
    stores = [SizeStore(books.database) for _ in range(3)]
    await asyncio.gather(*(store.add_whole(sized, 5, NOW) for store in stores for _ in range(10)))
    found = await stores[0].add_whole(sized, 0, NOW)
    assert found is not None and found.samples == 150


async def test_another_compression_begins_anew_and_late_samples_of_the_old_one_change_nothing(
    books: Books,
) -> None:
    caller, sized = await project_of(books)
    store = SizeStore(books.database)
    await store.add_whole(sized, 150, NOW)
    assert (await step_of(books, caller) or 0) > START
    await books.accounts.change_project(caller.project_id, {"compression": '{"within":0.1}'})
    assert await step_of(books, caller) is None
    assert await store.add_whole(sized, 100, NOW) is None
    assert await step_of(books, caller) is None
    found = await store.add_whole(replace(sized, compression='{"within":0.1}'), 1, NOW)
    assert found is not None and found.samples == 1


async def test_the_size_is_no_setting_and_changes_of_settings_say_nothing_of_it(books: Books) -> None:
    caller, sized = await project_of(books)
    await SizeStore(books.database).add_whole(sized, 150, NOW)
    await books.accounts.change_project(caller.project_id, {"weight": 2})
    found = await books.database.read(partial(audit_log.entries, subject=caller.project_id))
    assert found[-1].details == {"weight": [1, 2]}
