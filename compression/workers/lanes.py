"""Lanes in which jobs wait for a process: short before long, callers in turn, and none forever; and their plan."""

from __future__ import annotations

import asyncio
import os
from bisect import insort
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

from compression.scorers.kinds import KINDS, Kind

LaneName = Literal["small", "large", "trial"]
MOST_BY_DEFAULT = 4
# Below the server's other processes and the workers on small inputs: a tenth of a core that both want.
_NICE = 10
# CPU time. Beyond it an input counts as large whatever its size; small ones take a tenth of it.
_LONGEST_SMALL_S = 1.0
# A network's batches hold windows of all its requests; so many at once fill them.
_SMALL_TOGETHER, _LARGE_TOGETHER, _TRIALS_TOGETHER = 32, 2, 2


@dataclass(frozen=True, slots=True)
class LanePlan:
    """One of the lanes that jobs wait in. `slots`: jobs of it that run at once. `longest_s`: one that takes more of a
    CPU goes to the large lane. `is_warm`: its processes are there before the first job, and stay; others end with the
    job that they were started for, and give its memory back."""

    slots: int
    niceness: int = 0
    longest_s: float | None = None
    is_warm: bool = False


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """`shared`: processes that work on jobs of all lanes, many at a time; with 0 each slot is a process of its own.

    `large_bytes`: a larger input goes to the large lane. `max_waiting`: jobs at once, waiting and running.
    `deadline_s`: of a job, from when it was let in.
    """

    small: LanePlan
    large: LanePlan
    trial: LanePlan
    shared: int
    large_bytes: int
    max_waiting: int
    deadline_s: float

    def lanes(self) -> dict[LaneName, LanePlan]:
        return {"small": self.small, "large": self.large, "trial": self.trial}


def plan_of(
    kind: Kind, *, workers: int | None, large_bytes: int, max_waiting: int, deadline_s: float
) -> PoolPlan:
    """`workers` of None: as many as there are cores, up to four, for a kind without a network, else one."""
    if KINDS[kind].has_network:
        count = workers or 1
        return PoolPlan(
            small=LanePlan(count * _SMALL_TOGETHER),
            large=LanePlan(count * _LARGE_TOGETHER),
            trial=LanePlan(count * _TRIALS_TOGETHER),
            shared=count,
            large_bytes=large_bytes,
            max_waiting=max_waiting,
            deadline_s=deadline_s,
        )
    count = workers or min(MOST_BY_DEFAULT, len(os.sched_getaffinity(0)))
    return PoolPlan(
        small=LanePlan(count, longest_s=_LONGEST_SMALL_S, is_warm=True),
        large=LanePlan(max(1, count - 1), niceness=_NICE),
        trial=LanePlan(1, niceness=_NICE, is_warm=True),
        shared=0,
        large_bytes=large_bytes,
        max_waiting=max_waiting,
        deadline_s=deadline_s,
    )


# Why a worker was replaced: its job's time was over, its client left, its job was not as small as its size, or it died.
Replaced = Literal["deadline", "cancelled", "overlong", "died"]
REASONS: tuple[Replaced, ...] = get_args(Replaced)


class PoolObserver(Protocol):
    def jobs(self, *, waiting: int, running: int) -> None: ...

    def replaced(self, reason: Replaced) -> None: ...

    def deadline_passed(self) -> None: ...


class Unobserved:
    """Counts nothing."""

    def jobs(self, *, waiting: int, running: int) -> None:
        return

    def replaced(self, reason: Replaced) -> None:
        return

    def deadline_passed(self) -> None:
        return


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
