"""Who runs when, with workers that answer when they are told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from compression.pipeline.compression_model import JobTerms
from compression.pipeline.errors import CompressorFailed, CompressorOverloaded
from compression.workers.lanes import LanePlan, PoolPlan
from compression.workers.pool import Pool
from compression.workers.processes import WorkerCannotStart
from tests.compression.workers.acting import eventually
from tests.compression.workers.conftest import Counting, plan


@dataclass
class FakeWorker:
    """A fake: it has the jobs that it was sent, and answers the one that it is told to."""

    pid: int
    niceness: int
    jobs: dict[str, int] = field(default_factory=dict)
    cancelled: list[int] = field(default_factory=list)
    answered: asyncio.Queue[tuple[int, bytes] | None] = field(default_factory=asyncio.Queue)
    is_ended: bool = False
    used_s: float = 0.0
    refuses: str = ""

    def send(self, payload: bytes, number: int) -> None:
        name = payload.decode().rstrip()
        if name == self.refuses:
            raise BufferError("too much")
        self.jobs[name] = number

    def cancel(self, number: int) -> None:
        self.cancelled.append(number)

    async def answers(self) -> AsyncIterator[tuple[int, bytes]]:
        while (found := await self.answered.get()) is not None:
            yield found

    def end(self) -> None:
        self.is_ended = True

    def cpu_s(self) -> float:
        return self.used_s

    def died_with_fork_server(self) -> bool:
        return False

    def answer(self, name: str) -> None:
        self.answered.put_nowait((self.jobs.pop(name), name.encode()))

    def die(self) -> None:
        self.answered.put_nowait(None)


class Fakes:
    """A pool of fake workers, and the jobs that were begun in it."""

    def __init__(self, plan: PoolPlan) -> None:
        self.workers: list[FakeWorker] = []
        self.seen = Counting()
        self.failures = 0
        self.reason: Exception = WorkerCannotStart("no memory")
        self.pool = Pool(self.start, plan, self.seen)

    async def start(self, niceness: int) -> FakeWorker:
        if self.failures:
            self.failures -= 1
            raise self.reason
        self.workers.append(FakeWorker(len(self.workers), niceness))
        return self.workers[-1]

    def begin(self, name: str, size: int = 1, **terms: Any) -> asyncio.Task[bytes]:
        payload = name.encode().ljust(size)
        return asyncio.create_task(self.pool.run(payload, terms=JobTerms(**terms)))

    async def running(self) -> list[str]:
        """The jobs that workers have, once nothing moves any more."""
        for _ in range(20):
            await asyncio.sleep(0)
        return sorted(name for worker in self.workers if not worker.is_ended for name in worker.jobs)

    async def finish(self, name: str) -> None:
        next(worker for worker in self.workers if name in worker.jobs).answer(name)
        await self.running()


@asynccontextmanager
async def pool_of(plan: PoolPlan) -> AsyncIterator[Fakes]:
    found = Fakes(plan)
    await found.pool.start()
    try:
        yield found
    finally:
        await found.pool.close()


async def gathered(tasks: list[asyncio.Task[bytes]]) -> list[Any]:
    return [
        found.decode() if isinstance(found, bytes) else found
        for found in await asyncio.gather(*tasks, return_exceptions=True)
    ]


async def test_small_jobs_have_their_processes_whatever_the_large_ones_do() -> None:
    async with pool_of(plan(small=2, large=1)) as ours:
        tasks = [ours.begin(f"large {number}", 5000) for number in range(8)]
        tasks += [ours.begin(f"small {number}") for number in range(3)]
        assert await ours.running() == ["large 0", "small 0", "small 1"]
        await ours.finish("small 1")
        assert await ours.running() == ["large 0", "small 0", "small 2"]
        assert (ours.seen.waiting, ours.seen.running) == (7, 3)
        for task in tasks:
            task.cancel()


async def test_a_trial_keeps_nobody_waiting_who_pays() -> None:
    async with pool_of(plan(small=1)) as ours:
        tasks = [ours.begin(f"trial {number}", is_trial=True) for number in range(20)]
        tasks.append(ours.begin("paid"))
        assert await ours.running() == ["paid", "trial 0"]
        for task in tasks:
            task.cancel()


async def test_a_job_that_waits_and_is_given_up_just_goes() -> None:
    async with pool_of(plan()) as ours:
        first, second, third = ours.begin("first"), ours.begin("second"), ours.begin("third")
        await ours.running()
        second.cancel()
        await ours.running()
        assert ours.seen.waiting == 1 and not ours.workers[0].is_ended
        await ours.finish("first")
        assert await ours.running() == ["third"] and ours.seen.reasons == []
        await ours.finish("third")
        assert (await gathered([first, third])) == ["first", "third"] and second.cancelled()


async def test_no_more_wait_than_may_and_who_has_most_gives_way_to_who_has_few() -> None:
    async with pool_of(plan(max_waiting=6)) as ours:
        many = [ours.begin(f"many {number}", payer="many") for number in range(6)]
        await ours.running()
        with pytest.raises(CompressorOverloaded, match="6 compressions are already waiting"):
            await ours.begin("many more", payer="many")
        few = ours.begin("few", payer="few")
        await ours.running()
        assert isinstance(many[5].exception(), CompressorOverloaded)
        assert not few.done() and not any(task.done() for task in many[:5])
        for task in [*many, few]:
            task.cancel()


async def test_trials_give_way_first_and_take_nobodys_place() -> None:
    async with pool_of(plan(max_waiting=4)) as ours:
        paid = [ours.begin(f"paid {number}", payer="one") for number in range(2)]
        trials = [ours.begin(f"trial {number}", is_trial=True) for number in range(2)]
        await ours.running()
        with pytest.raises(CompressorOverloaded):
            await ours.begin("trial more", is_trial=True)
        paid.append(ours.begin("paid 2", payer="one"))
        await ours.running()
        assert isinstance(trials[1].exception(), CompressorOverloaded) and not paid[2].done()
        with pytest.raises(CompressorOverloaded):
            await ours.begin("paid 3", payer="one")
        for task in [*paid, *trials]:
            task.cancel()


async def test_processes_that_do_not_start_are_tried_again_and_then_the_pool_is_ill() -> None:
    async with pool_of(plan()) as ours:
        ours.pool.check()
        ours.failures, ours.reason = 1, OSError("too many open files")
        ours.workers[0].die()
        task = ours.begin("later")
        await eventually(lambda: len(ours.workers) == 2)
        assert await ours.running() == ["later"]
        ours.pool.check()
        ours.failures, ours.reason = 1000, WorkerCannotStart("no memory")
        ours.workers[1].die()
        assert isinstance((await gathered([task]))[0], Exception)
        await eventually(lambda: ours.failures < 996)
        with pytest.raises(WorkerCannotStart, match="no memory"):
            ours.pool.check()


async def test_a_shared_process_has_so_many_of_each_lane_at_once() -> None:
    lanes = (LanePlan(4), LanePlan(1), LanePlan(1))
    async with pool_of(PoolPlan(*lanes, shared=1, large_bytes=10, max_waiting=64, deadline_s=60)) as ours:
        tasks = [ours.begin(f"large {number}", 100) for number in range(3)]
        tasks += [ours.begin(f"small {number}") for number in range(6)]
        tasks += [ours.begin(f"trial {number}", is_trial=True) for number in range(3)]
        running = await ours.running()
        assert running == ["large 0", "small 0", "small 1", "small 2", "small 3", "trial 0"]
        assert len(ours.workers) == 1
        for task in tasks:
            task.cancel()


async def test_a_small_job_that_waits_for_a_cpu_is_no_large_one() -> None:
    async with pool_of(plan(longest_s=0.01)) as ours:
        task = ours.begin("starved")
        await ours.running()
        await asyncio.sleep(0.15)
        assert await ours.running() == ["starved"] and ours.seen.reasons == []
        ours.workers[0].used_s = 1.0
        await eventually(lambda: ours.seen.reasons == ["overlong"])
        assert ours.workers[0].is_ended and await ours.running() == ["starved"]
        task.cancel()


async def test_the_process_of_a_large_job_ends_with_it() -> None:
    async with pool_of(plan()) as ours:
        for _ in range(2):
            task = ours.begin("large", 5000)
            await ours.running()
            await ours.finish("large")
            assert await gathered([task]) == ["large"]
        small, *large = ours.workers
        assert [worker.is_ended for worker in large] == [True, True] and not small.is_ended
        assert ours.seen.reasons == []


async def test_an_answer_that_comes_with_the_callers_leaving_hurts_nobody() -> None:
    async with pool_of(plan()) as ours:
        task = ours.begin("first")
        await ours.running()
        ours.workers[0].answer("first")
        task.cancel()
        await ours.running()
        second = ours.begin("second")
        assert await ours.running() == ["second"]
        await ours.finish("second")
        assert await gathered([second]) == ["second"]


@pytest.mark.parametrize("shared", [0, 1])
async def test_a_job_that_cannot_be_sent_fails_alone_and_takes_nothing_with_it(shared: int) -> None:
    async with pool_of(plan(shared=shared)) as ours:
        # One place, which what failed must have given back each time.
        for name in ("bad", "bad", "bad"):
            ours.workers[0].refuses = name
            with pytest.raises(CompressorFailed, match="could not be sent"):
                await ours.begin(name)
        assert (ours.seen.waiting, ours.seen.running) == (0, 0)
        first, bad, last = ours.begin("first"), ours.begin("bad"), ours.begin("last")
        assert await ours.running() == ["first"]
        await ours.finish("first")
        assert await ours.running() == ["last"]
        await ours.finish("last")
        assert isinstance(bad.exception(), CompressorFailed) and await gathered([first, last]) == [
            "first",
            "last",
        ]
        assert len(ours.workers) == 1 and ours.seen.reasons == []
