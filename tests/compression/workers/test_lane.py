"""The order in which jobs have their turn."""

from __future__ import annotations

import asyncio

from compression.workers.lanes import Job, Lane, LanePlan


class Queue:
    """A lane, filled at stated times."""

    def __init__(self, slots: int = 1) -> None:
        self.lane = Lane(LanePlan(slots))
        self.count = 0

    def add(self, name: str, size: int, *, payer: str = "", at_s: float = 0.0) -> Job:
        self.count += 1
        answer = asyncio.get_running_loop().create_future()
        job = Job(self.count, name.encode(), size, payer or name, "small", 60.0, answer)
        self.lane.add(job, at_s)
        return job

    def order(self) -> list[str]:
        found = []
        while (job := self.lane.first()) is not None:
            found.append(job.payload.decode())
            self.lane.remove(job)
        return found


async def test_a_short_job_goes_before_a_long_one_that_came_with_it() -> None:
    queue = Queue()
    queue.add("long", 60_000)
    queue.add("short", 1000)
    assert queue.order() == ["short", "long"]


async def test_a_long_job_is_not_overtaken_for_ever() -> None:
    queue = Queue()
    queue.add("long", 2_000_000, at_s=0)
    for second in range(10):
        queue.add(f"short {second}", 1000, at_s=float(second))
    assert queue.order()[4] == "long"


async def test_callers_take_turns_however_much_one_of_them_asks() -> None:
    queue = Queue()
    for number in range(50):
        queue.add(f"many {number}", 8000, payer="many")
    queue.add("few 0", 8000, payer="few")
    queue.add("few 1", 8000, payer="few")
    assert queue.order()[:4] == ["many 0", "few 0", "many 1", "few 1"]


async def test_who_asked_much_before_waits_no_longer_for_it() -> None:
    queue = Queue()
    for _ in range(50):
        queue.add("many", 8000, payer="many", at_s=0)
    queue.order()
    queue.add("many", 8000, payer="many", at_s=100)
    queue.add("other", 8000, payer="other", at_s=100)
    assert queue.order() == ["many", "other"]


async def test_no_caller_is_remembered_for_good() -> None:
    queue = Queue()
    for number in range(500):
        queue.add("one", 10, payer=f"caller {number}", at_s=float(number))
        queue.order()
    assert len(queue.lane._ahead) < 50


async def test_nothing_is_first_while_every_slot_is_taken() -> None:
    queue = Queue(slots=2)
    queue.add("one", 10)
    queue.lane.running = 2
    assert queue.lane.first() is None
    queue.lane.running = 1
    assert queue.lane.first() is not None


async def test_what_begins_again_has_the_place_that_it_had() -> None:
    queue = Queue()
    first, _ = queue.add("first", 10), queue.add("second", 10)
    queue.lane.remove(first)
    queue.lane.add_again(first)
    assert queue.order() == ["first", "second"]
    assert not queue.lane.remove(first)
