"""Batches in the ledger: every line is ended once, by one attempt, together with its money, or with nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from billing.batches import batch_sql, line_sql
from billing.batches.batch import (
    BatchEnded,
    ClaimedLine,
    Counts,
    LineTokens,
    LostClaim,
    ResultsFull,
    TooManyBatches,
    UnknownBatch,
    UnknownFile,
)
from billing.batches.batch_store import BatchStore, WrittenFile
from billing.batches.file_store import FileStore
from billing.caller import Caller
from billing.errors import LedgerUnavailable
from billing.price import Cost
from billing.store.database import FakeOutageDatabase
from billing.usage import Settlement, UsageFigures, Used
from tests.billing.batches.making import ROOMY, new_batch, new_file, running, some_lines, store_of, uploaded
from tests.billing.conftest import NOW, Books

LEASE = timedelta(seconds=30)
RESULT = '{"custom_id":"line-1"}'


async def settle(books: Books, store: BatchStore, caller: Caller, line: ClaimedLine) -> Settlement:
    """As a line that ran is settled."""
    hold = await books.hold(caller)
    used = Used(hold, UsageFigures(7, 5, 2, stream=False), Cost(400, 400, minimum_applied=False), 500_000)
    also = store.ending(line, "completed", RESULT, LineTokens(7, 2, 5))
    (settlement,) = await books.ledger.settle_all([used], outcome="completed", now=NOW, also=also)
    return settlement


async def test_a_line_and_its_money_are_written_together_once(books: Books) -> None:
    store, caller = store_of(books), await books.new_caller()
    new = await running(books, store, caller, lines=2)
    first, second = await store.claim(new.id, 5)
    assert (await settle(books, store, caller, first)).persisted
    assert await store.claim(new.id, 5) == []
    with pytest.raises(LostClaim):
        await settle(books, store, caller, first)
    await books.ledger.close()
    assert await books.money(caller) == (400, 0)
    (event,) = await books.events()
    assert event.price_ppm == 500_000
    batch = await store.find(caller.project_id, new.id)
    assert batch.counts == Counts(2, 1, 0)
    assert await store.counts_of(new.id) == Counts(2, 1, 0, 7, 2, 5)
    await store.fail_line(second, "{}")
    ended = await store.ended_lines(new.id, after=0, limit=10)
    assert [(line.state, line.result) for line in ended] == [("completed", RESULT), ("failed", "{}")]


async def test_a_line_whose_attempt_died_is_claimed_again_and_the_dead_attempt_cannot_end_it(
    books: Books,
) -> None:
    store, caller = store_of(books), await books.new_caller()
    new = await running(books, store, caller, lines=1)
    (dead,) = await store.claim(new.id, 1)
    await books.at(NOW + LEASE / 2)
    await store.keep_lines([dead])
    await books.at(NOW + LEASE)
    assert await store.claim(new.id, 1) == []
    await books.at(NOW + 2 * LEASE)
    (alive,) = await store.claim(new.id, 1)
    assert (alive.attempts, alive.line) == (2, dead.line)
    with pytest.raises(LostClaim):
        await settle(books, store, caller, dead)
    await store.keep_lines([dead])
    await settle(books, store, caller, alive)
    await books.ledger.close()
    assert await books.money(caller) == (400, 0)


async def test_an_answer_that_was_lost_charges_once_and_is_never_spooled(books: Books) -> None:
    outage = FakeOutageDatabase(books.database)
    store, caller = store_of(books), await books.new_caller()
    new = await running(books, store, caller, lines=1)
    (line,) = await store.claim(new.id, 1)
    hold = await books.hold(caller)
    books.ledger._recorder._ledger._database = outage
    outage.loses_answers = True
    used = Used(hold, UsageFigures(7, 5, 2, stream=False), Cost(400, 400, minimum_applied=False))
    with pytest.raises(LedgerUnavailable):
        await books.ledger.settle_all(
            [used], outcome="completed", now=NOW, also=store.ending(line, "completed", RESULT)
        )
    assert await books.spool.count_waiting() == 0
    # It was committed, so nobody runs the line again.
    await store.put_back(line, wait_s=0, counts=True)
    assert await store.claim(new.id, 1) == []
    await books.ledger.close()
    assert await books.money(caller) == (400, 0)


async def test_an_attempt_that_came_to_nothing_waits_and_may_count_or_not(books: Books) -> None:
    store, caller = store_of(books), await books.new_caller()
    new = await running(books, store, caller, lines=1)
    (line,) = await store.claim(new.id, 1)
    await store.put_back(line, wait_s=5, counts=False)
    assert await store.claim(new.id, 1) == []
    await books.at(NOW + timedelta(seconds=5))
    (line,) = await store.claim(new.id, 1)
    assert line.attempts == 1
    await store.put_back(line, wait_s=0, counts=True)
    assert [each.attempts for each in await store.claim(new.id, 1)] == [2]


async def test_two_processes_claim_different_lines(books: Books) -> None:
    one, other = store_of(books), store_of(books)
    new = await running(books, one, await books.new_caller(), lines=3)
    numbers = [line.line.number for store in (one, other) for line in await store.claim(new.id, 2)]
    assert numbers == [1, 2, 3]


async def test_a_cancelled_batch_waits_for_what_runs_and_gives_up_the_rest(books: Books) -> None:
    store, caller = store_of(books), await books.new_caller()
    new = await running(books, store, caller, lines=3)
    (line,) = await store.claim(new.id, 1)
    assert (await store.cancel(caller.project_id, new.id)).status == "cancelling"
    assert (await store.cancel(caller.project_id, new.id)).status == "cancelling"
    await store.advance()
    assert await store.claim(new.id, 1) == []
    assert (await store.find(caller.project_id, new.id)).status == "cancelling"
    await settle(books, store, caller, line)
    await store.advance()
    batch = await store.find(caller.project_id, new.id)
    assert (batch.status, batch.counts.completed, batch.counts.failed) == ("finalizing", 1, 2)
    states = [ended.state for ended in await store.ended_lines(new.id, after=0, limit=9)]
    assert states == ["completed", "cancelled", "cancelled"]
    with pytest.raises(BatchEnded):
        await store.cancel(caller.project_id, new.id)


async def test_what_has_not_run_in_time_expires(books: Books) -> None:
    store, caller = store_of(books), await books.new_caller()
    new = await running(books, store, caller, lines=1, window_s=60)
    await books.at(NOW + timedelta(seconds=61))
    await store.advance()
    assert await store.running() == []
    batch = await store.find(caller.project_id, new.id)
    assert (batch.status, batch.ends_as) == ("finalizing", "expired")


async def test_one_that_was_never_validated_in_time_expires_and_its_validator_ends_nothing(
    books: Books,
) -> None:
    store, caller = store_of(books), await books.new_caller()
    new = new_batch(caller, await uploaded(books, caller), window_s=60)
    await store.make(new)
    job = await store.take_job(["validating"])
    assert job is not None
    await books.at(NOW + timedelta(seconds=61))
    await store.advance()
    with pytest.raises(LostClaim):
        await store.begin(job)
    last = await store.take_job(["finalizing"])
    assert last is not None and last.batch.moments.in_progress is None
    await store.finish(last, Counts(), output=None, error=None)
    assert (await store.find(caller.project_id, new.id)).status == "expired"


async def test_a_batch_ends_together_with_its_files_and_its_lines_go(books: Books) -> None:
    store, files, caller = store_of(books), FileStore(books.database), await books.new_caller()
    new = await running(books, store, caller, lines=1)
    (line,) = await store.claim(new.id, 1)
    await settle(books, store, caller, line)
    assert await store.running() == [(new.id, caller.project_id)]
    await store.advance()
    job = await store.take_job(["finalizing"])
    assert job is not None
    assert await store.take_job(["finalizing"]) is None
    output = new_file(caller, purpose="batch_output")
    await files.begin(replace(output, size=0), None)
    await store.finish(job, Counts(1, 1), output=WrittenFile(output.id, 55, 60), error=None)
    batch = await store.find(caller.project_id, new.id)
    assert (batch.status, batch.output_file_id, batch.counts) == ("completed", output.id, Counts(1, 1))
    assert batch.moments.completed == NOW.timestamp()
    assert (await files.find(caller.project_id, output.id)).size == 55
    assert await store.clear_some()
    assert not await store.clear_some()
    assert await store.ended_lines(new.id, after=0, limit=1) == []


async def test_a_job_that_somebody_else_took_over_ends_nothing(books: Books) -> None:
    store, files, caller = store_of(books), FileStore(books.database), await books.new_caller()
    await store.make(new_batch(caller, await uploaded(books, caller)))
    slow = await store.take_job(["validating"])
    assert slow is not None
    await store.add_lines(slow, some_lines(2))
    await books.at(NOW + 2 * LEASE)
    quick = await store.take_job(["validating"])
    assert quick is not None
    assert not await store.drop_lines(quick)
    assert await store.add_lines(quick, some_lines(1)) == []
    assert [line.number for line in await store.add_lines(quick, some_lines(2))] == [1]
    output = new_file(caller)
    await files.begin(output, ROOMY)
    for late in (store.add_lines(slow, some_lines(1)), store.begin(slow), store.fail(slow, "[]")):
        with pytest.raises(LostClaim):
            await late
    await store.begin(quick)


async def test_a_batch_is_its_projects_alone(books: Books) -> None:
    store, owner, stranger = store_of(books), await books.new_caller(), await books.new_caller()
    file = await uploaded(books, owner)
    new = new_batch(owner, file)
    await store.make(new)
    for call in (store.find, store.cancel):
        with pytest.raises(UnknownBatch):
            await call(stranger.project_id, new.id)
    with pytest.raises(UnknownFile):
        await store.make(new_batch(stranger, file))
    assert await store.listed(stranger.project_id, limit=5, after=None) == []
    assert [batch.id for batch in await store.listed(owner.project_id, limit=5, after=None)] == [new.id]
    with pytest.raises(TooManyBatches):
        await store.make(new_batch(owner, file), most_unfinished=1)


async def test_inputs_are_taken_by_project_in_turn(books: Books) -> None:
    store = store_of(books)
    owners = [await books.new_caller(), await books.new_caller()]
    for owner in (owners[0], owners[0], owners[0], owners[1]):
        await store.make(new_batch(owner, await uploaded(books, owner)))
    taken, last = [], ""
    while (job := await store.take_job(["validating"], after_project=last)) is not None:
        last = job.batch.new.project_id
        taken.append(last)
    assert set(taken[:2]) == {owner.project_id for owner in owners} and len(taken) == 4


async def test_of_batches_that_ended_the_newest_are_kept(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_sql, "MOST_ENDED", 2)
    store, caller, made = store_of(books), await books.new_caller(), []
    for number in range(5):
        await books.at(NOW + timedelta(seconds=number))
        new = new_batch(caller, await uploaded(books, caller))
        await store.make(new)
        made.append(new.id)
        job = await store.take_job(["validating"])
        assert job is not None
        await store.fail(job, "[]")
        while await store.clear_some():
            pass
    left = await store.listed(caller.project_id, limit=10, after=None)
    assert [batch.id for batch in left] == made[:1:-1]


async def test_results_are_read_by_their_size(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_sql, "PAGE_CHARS", 100)
    store, caller = store_of(books), await books.new_caller()
    new = await running(books, store, caller, lines=5)
    for line, size in zip(await store.claim(new.id, 4), (10, 95, 300, 10), strict=True):
        await store.fail_line(line, "x" * size)
    pages, after = [], 0
    while page := await store.ended_lines(new.id, after=after, limit=50):
        pages.append([line.number for line in page])
        after = page[-1].number
    assert pages == [[1, 2], [3], [4, 5]]


async def test_results_count_as_files_until_they_are_in_one(books: Books) -> None:
    store, caller = store_of(books), await books.new_caller()
    new = await running(books, store, caller, lines=2)
    (first, second) = await store.claim(new.id, 2)
    await store.check_room(caller.project_id, 101)
    await store.fail_line(first, "é")
    with pytest.raises(ResultsFull):
        await store.check_room(caller.project_id, 103)
    await store.check_room(caller.project_id, 104)
    with pytest.raises(LostClaim):
        await store.fail_line(first, "again")
    await store.fail_line(second, "12")
    await store.advance()
    job = await store.take_job(["finalizing"])
    assert job is not None
    await store.finish(job, Counts(2), output=None, error=None, kept_bytes=6)
    await store.check_room(caller.project_id, 101)
    with pytest.raises(ResultsFull):
        await store.check_room(caller.project_id, 100)
