"""Pauses by vLLM's preemption: who is paused, and when, in a fake scheduler; and what is relied on in vLLM's own."""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass, field
from typing import Any

from models.vllm.lending import FIRST, PAUSED, RUNS, TAKE_BACK_AFTER_S, reorder, take_back
from tests.vendor_source import parameters, text

SCHEDULER = "vllm.v1.core.sched.scheduler"
QUEUE = "vllm.v1.core.sched.request_queue"


@dataclass(eq=False)
class FakeRequest:
    request_id: str
    arrival_time: float
    priority: int = RUNS

    def __lt__(self, other: FakeRequest) -> bool:
        return (self.priority, self.arrival_time) < (other.priority, other.arrival_time)


class FakeQueue(list[FakeRequest]):
    """A fake of `PriorityRequestQueue`."""

    def peek_request(self) -> FakeRequest:
        return self[0]

    def add_request(self, request: FakeRequest) -> None:
        heapq.heappush(self, request)

    def remove_request(self, request: FakeRequest) -> None:
        self.remove(request)
        heapq.heapify(self)


@dataclass
class FakeScheduler:
    running: list[FakeRequest]
    waiting: FakeQueue = field(default_factory=FakeQueue)
    skipped_waiting: FakeQueue = field(default_factory=FakeQueue)
    max_num_running_reqs: int = 3
    requires_kv_delivery: bool = False
    preempted: list[str] = field(default_factory=list)

    @property
    def requests(self) -> dict[str, FakeRequest]:
        return {one.request_id: one for one in (*self.running, *self.waiting, *self.skipped_waiting)}

    def _preempt_request(self, request: FakeRequest, at: float, drop_stale_output: bool) -> None:
        self.preempted.append(request.request_id)
        self.waiting.add_request(request)


def running() -> list[FakeRequest]:
    return [FakeRequest(name, time.time() - 9 + age) for age, name in enumerate("abc")]


def due(name: str) -> FakeRequest:
    return FakeRequest(name, time.time() - 2 * TAKE_BACK_AFTER_S)


def test_the_newest_that_is_to_be_paused_goes_for_one_that_has_waited() -> None:
    scheduler = FakeScheduler(running())
    reorder(scheduler, ["a", "b", "gone"], PAUSED)
    scheduler.waiting.add_request(due("d"))
    take_back(scheduler)
    assert scheduler.preempted == ["b"]
    assert [one.request_id for one in scheduler.running] == ["a", "c"]
    # Behind whoever waits, until it is told to keep its places.
    assert scheduler.waiting.peek_request().request_id == "d"
    reorder(scheduler, ["b"], RUNS)
    assert scheduler.waiting.peek_request().request_id == "b"


def test_none_goes_for_one_that_has_just_come_or_is_paused_itself_or_finds_room() -> None:
    scheduler = FakeScheduler(running())
    reorder(scheduler, "abc", PAUSED)
    scheduler.waiting.add_request(FakeRequest("new", time.time() + 60))
    take_back(scheduler)
    assert not scheduler.preempted
    scheduler.waiting = FakeQueue([FakeRequest("paused", 0.0, PAUSED)])
    take_back(scheduler)
    assert not scheduler.preempted
    scheduler.max_num_running_reqs = 4
    scheduler.waiting = FakeQueue([due("d")])
    take_back(scheduler)
    assert not scheduler.preempted


def test_one_of_the_tier_priority_does_not_wait_for_its_place() -> None:
    scheduler = FakeScheduler(running())
    reorder(scheduler, "ab", PAUSED)
    scheduler.waiting = FakeQueue()
    for name, priority in (("default", RUNS), ("priority", FIRST)):
        scheduler.waiting.add_request(FakeRequest(name, time.time() + 60, priority))
    take_back(scheduler)
    assert scheduler.preempted == ["b"] and scheduler.waiting.peek_request().request_id == "priority"


def test_nobody_goes_who_was_not_told_to() -> None:
    scheduler = FakeScheduler(running())
    scheduler.waiting.add_request(due("d"))
    take_back(scheduler)
    assert not scheduler.preempted


def test_vllms_scheduler_is_what_is_relied_on() -> None:
    assert parameters(SCHEDULER, "Scheduler._preempt_request")[:2] == ["request", "timestamp"]
    preempt = text(SCHEDULER, "Scheduler._preempt_request")
    assert "self.waiting.prepend_request(request)" in preempt
    assert "self.reset_preempted_req_ids.add(request.request_id)" in preempt
    # As it preempts for itself, while a step is under way.
    assert "drop_stale_output=self.requires_kv_delivery" in text(SCHEDULER, "Scheduler.schedule")
    assert "self.priority < other.priority" in text("vllm.v1.request", "Request.__lt__")
    for name in ("peek_request", "add_request", "remove_request", "__iter__"):
        assert text(QUEUE, f"PriorityRequestQueue.{name}")


def test_a_client_may_call_a_method_of_the_engine_core() -> None:
    utility: Any = text("vllm.v1.engine.core", "EngineCoreProc._handle_client_request")
    assert "getattr(self, method_name)" in utility
