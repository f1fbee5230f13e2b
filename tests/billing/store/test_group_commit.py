"""`billing.store.postgres` without a database: who shares a group, in what order, and who overtakes whom."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from billing.errors import LedgerUnavailable
from billing.store.database import RowWork
from billing.store.postgres import GroupCommit, Job


class FakeTransactions:
    """A fake of the database: a group ends when its row is not among the stuck ones."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.most = 0
        self._under_way = 0
        self.stuck: dict[str, asyncio.Event] = {}
        self.divides = False

    async def run(self, group: list[Job]) -> list[list[Job]]:
        rows = [job.row for job in group]
        self.groups.append(rows)
        self._under_way += 1
        self.most = max(self.most, self._under_way)
        try:
            if self.divides and len(set(rows)) > 1:
                return [[job for job in group if job.row == row] for row in sorted(set(rows))]
            for row in set(rows) & set(self.stuck):
                await self.stuck[row].wait()
            await asyncio.sleep(0)
        finally:
            self._under_way -= 1
        for job in group:
            job.succeed(job.row)
        return []


@pytest.fixture
def fake() -> FakeTransactions:
    return FakeTransactions()


def grouping_of(
    fake: FakeTransactions, *, lanes: int = 4, max_group: int = 4, stall_s: float = 60
) -> GroupCommit:
    return GroupCommit(fake.run, lanes=lanes, max_group=max_group, stall_s=stall_s)


def submit(group_commit: GroupCommit, rows: str) -> list[Job]:
    jobs = [Job(RowWork(row, lambda _: None), durable=True) for row in rows]
    for job in jobs:
        group_commit.submit(job)
    return jobs


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not come to that within ten seconds")


async def test_groups_follow_one_another_and_are_sorted_by_row(fake: FakeTransactions) -> None:
    group_commit = grouping_of(fake)
    submit(group_commit, "bacab")
    await group_commit.close()
    assert fake.groups == [["a", "a", "b", "b"], ["c"]]
    assert fake.most == 1


async def test_a_row_with_many_jobs_takes_turns_with_the_others(fake: FakeTransactions) -> None:
    group_commit = grouping_of(fake)
    submit(group_commit, "aaaaaaaaab")
    await group_commit.close()
    assert fake.groups == [["a"] * 4, ["a", "a", "a", "b"], ["a", "a"]]


async def test_a_job_that_was_cancelled_before_its_turn_never_starts(fake: FakeTransactions) -> None:
    group_commit = grouping_of(fake)
    jobs = submit(group_commit, "aaab")
    jobs[1].done.cancel()
    jobs[3].done.cancel()
    await group_commit.close()
    assert fake.groups == [["a", "a"]]
    assert [job.has_started for job in jobs] == [True, False, True, False]


async def test_a_row_whose_jobs_were_all_cancelled_takes_jobs_again(fake: FakeTransactions) -> None:
    group_commit = grouping_of(fake)
    for job in submit(group_commit, "aaaaaa"):
        job.done.cancel()
    await asyncio.sleep(0)
    jobs = submit(group_commit, "a")
    await group_commit.close()
    assert jobs[0].done.result() == "a"


async def test_a_group_that_stalls_is_overtaken_by_other_rows_alone(fake: FakeTransactions) -> None:
    fake.stuck["a"] = asyncio.Event()
    group_commit = grouping_of(fake, stall_s=0.01)
    first = submit(group_commit, "a")
    await until(lambda: fake.groups == [["a"]])
    jobs = submit(group_commit, "ab")
    await until(jobs[1].done.done)
    assert not jobs[0].has_started
    fake.stuck["a"].set()
    await group_commit.close()
    assert all(job.done.result() == "a" for job in [*first, jobs[0]])
    assert fake.groups == [["a"], ["b"], ["a"]]


async def test_no_more_groups_than_lanes_are_under_way(fake: FakeTransactions) -> None:
    fake.stuck = {row: asyncio.Event() for row in "abcdef"}
    group_commit = grouping_of(fake, lanes=3, max_group=1, stall_s=0.001)
    jobs = submit(group_commit, "abcdef")
    await until(lambda: len(fake.groups) == 3)
    for event in fake.stuck.values():
        event.set()
    await group_commit.close()
    assert all(job.done.done() for job in jobs)
    assert fake.most == 3


async def test_a_divided_group_keeps_each_row_until_its_own_part_ends(fake: FakeTransactions) -> None:
    fake.divides, fake.stuck["a"] = True, asyncio.Event()
    group_commit = grouping_of(fake)
    jobs = submit(group_commit, "ab")
    await until(jobs[1].done.done)
    more = submit(group_commit, "ab")
    await until(more[1].done.done)
    assert not more[0].has_started
    fake.stuck["a"].set()
    await group_commit.close()
    assert fake.groups == [["a", "b"], ["a"], ["b"], ["b"], ["a"]]


async def test_nothing_is_taken_after_the_close(fake: FakeTransactions) -> None:
    group_commit = grouping_of(fake)
    jobs = submit(group_commit, "a" * 20)
    await group_commit.close()
    assert all(job.done.done() for job in jobs)
    with pytest.raises(LedgerUnavailable, match="closed"):
        submit(group_commit, "a")
