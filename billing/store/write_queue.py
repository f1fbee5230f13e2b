"""What waits for SQLite's one writer, and what of it shares a transaction."""

import asyncio
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from billing.store.database import PatientWork, Work

MAX_GROUP = 64


@dataclass(slots=True, eq=False)
class Job:
    """One unit of work that waits for the writer. Its caller may cancel `done` until the writer takes it."""

    work: Work[Any]
    durable: bool
    done: asyncio.Future[Any]


@dataclass(slots=True, eq=False)
class Waiting:
    """The jobs that the writer has not begun. Of patient work one at most is done between two groups of the rest, so
    that a hold never waits for more than one of it."""

    _urgent: deque[Job] = field(default_factory=deque)
    _patient: deque[Job] = field(default_factory=deque)

    def __bool__(self) -> bool:
        return bool(self._urgent or self._patient)

    def extend(self, jobs: list[Job]) -> None:
        for job in jobs:
            (self._patient if isinstance(job.work, PatientWork) else self._urgent).append(job)

    def next_groups(self) -> Iterator[list[Job]]:
        """What shares a transaction, and after it one job of patient work. Given up jobs are left out."""
        for jobs, most in ((self._urgent, MAX_GROUP), (self._patient, 1)):
            if group := _taken(jobs, most):
                yield group


def _taken(jobs: deque[Job], most: int) -> list[Job]:
    group: list[Job] = []
    while jobs and len(group) < most:
        job = jobs.popleft()
        if not job.done.cancelled():
            group.append(job)
    return group
