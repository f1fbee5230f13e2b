"""Jobs that wait for a process: short before long, callers in turn, and none forever."""

from __future__ import annotations

import asyncio
from bisect import insort
from dataclasses import dataclass, field
from typing import Any

from compression.workers.plan import LaneName, LanePlan

# About what a job takes; used for the order only.
_JOB_S = 0.01
_BYTES_PER_S = 500_000


@dataclass(eq=False, slots=True)
class Job:
    """One piece of work. `place` orders its lane; `worker` has it while it runs. `is_suspect`: a process that it shared
    with others died, and it may have been its doing."""

    number: int
    payload: bytes
    size: int
    payer: str
    lane: LaneName
    deadline_s: float
    answer: asyncio.Future[bytes]
    place: float = 0.0
    worker: Any = None
    is_suspect: bool = False
    # CPU seconds that its process had used before it.
    cpu_began_s: float = 0.0
    timer: asyncio.TimerHandle | None = field(default=None)

    def __lt__(self, other: Job) -> bool:
        return (self.place, self.number) < (other.place, other.number)

    @property
    def is_wanted(self) -> bool:
        return not self.answer.done()


class Lane:
    """Weighted fair queueing: a job's place is where its payer's work before it ends, and its own length.

    A place is never before now, so no job is overtaken forever.
    """

    def __init__(self, plan: LanePlan) -> None:
        self.plan = plan
        self.waiting: list[Job] = []
        self.running = 0
        self._ahead: dict[str, float] = {}

    def add(self, job: Job, now_s: float) -> None:
        begins = max(now_s, self._ahead.get(job.payer, now_s))
        job.place = self._ahead[job.payer] = begins + _JOB_S + job.size / _BYTES_PER_S
        insort(self.waiting, job)
        if len(self._ahead) > 2 * len(self.waiting) + 16:
            self._ahead = {payer: place for payer, place in self._ahead.items() if place > now_s}

    def add_again(self, job: Job) -> None:
        """At the place that it had."""
        insort(self.waiting, job)

    def first(self) -> Job | None:
        """The job whose turn it is, if one may run."""
        return self.waiting[0] if self.waiting and self.running < self.plan.slots else None

    def remove(self, job: Job) -> bool:
        """False where it does not wait here."""
        try:
            self.waiting.remove(job)
        except ValueError:
            return False
        return True
