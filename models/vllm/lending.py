"""Pauses of requests whose places others are owed, by vLLM's own preemption.

A request to be paused gets the priority `PAUSED`, behind all others. It goes on until another has waited for a
moment, or one of the tier `priority` comes; then vLLM takes it out of the batch. Its tokens stay, as do most of its
blocks in the prefix cache, and it goes on where it was when nobody else waits or it is told to keep its places.
"""

import time
from collections.abc import Sequence
from typing import Any

FIRST, RUNS, PAUSED = -1, 0, 1
# A place often comes back by itself within this time.
TAKE_BACK_AFTER_S = 0.1


def lend_places() -> None:
    """Have vLLM's schedulers in this process pause what is to be paused (`vllm.v1.core.sched.scheduler.Scheduler`), and
    give engine cores the method by which a replica tells them (`vllm.v1.engine.core.EngineCore`, of which clients may
    call any method). For the scheduling policy `priority`."""
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.engine.core import EngineCore

    schedule = Scheduler.schedule

    def schedule_what_is_owed(self: Any, *args: Any, **options: Any) -> Any:
        if self.waiting:
            take_back(self)
        return schedule(self, *args, **options)

    def set_priorities(self: Any, request_ids: Sequence[str], priority: int) -> None:
        reorder(self.scheduler, request_ids, priority)

    Scheduler.schedule = schedule_what_is_owed
    EngineCore.set_priorities = set_priorities


def reorder(scheduler: Any, request_ids: Sequence[str], priority: int) -> None:
    """What has ended meanwhile is passed over."""
    for request in filter(None, map(scheduler.requests.get, request_ids)):
        queues = [queue for queue in (scheduler.waiting, scheduler.skipped_waiting) if request in queue]
        for queue in queues:
            queue.remove_request(request)
        request.priority = priority
        for queue in queues:
            queue.add_request(request)


def take_back(scheduler: Any) -> None:
    """Preempt as many that are to be paused, the newest first, as others have waited for; those that go first do not
    wait."""
    latest = time.time() - TAKE_BACK_AFTER_S

    def is_owed(one: Any) -> bool:
        return bool(one.priority == FIRST or (one.priority == RUNS and one.arrival_time <= latest))

    if not is_owed(scheduler.waiting.peek_request()):
        return
    free = scheduler.max_num_running_reqs - len(scheduler.running)
    owed = sum(map(is_owed, scheduler.waiting))
    paused = [one for one in scheduler.running if one.priority == PAUSED]
    paused.sort(key=lambda one: one.arrival_time, reverse=True)
    for request in paused[: max(0, owed - free)]:
        scheduler.running.remove(request)
        scheduler._preempt_request(
            request, time.monotonic(), drop_stale_output=scheduler.requires_kv_delivery
        )
