"""The processes of a model and what each may take on, by a few numbers of its configuration; and what is counted."""

import os
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

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
