"""All cases in all arms, until the time is up."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from benchmarks.answers.arms import Arm
from benchmarks.answers.asking import Reader
from benchmarks.answers.record import Record
from benchmarks.evaluation.case import Case, seeded


@dataclass(frozen=True, slots=True)
class Run:
    """What the record lacks of the arms is asked; nothing is begun after `until`, on the monotonic clock."""

    reader: Reader
    arms: Sequence[Arm]
    record: Record
    until: float

    def over(self, cases: Sequence[Case], *, alone: int, clients: int) -> Iterator[Case]:
        """Cases as they are done. The first `alone` have one request at a time, for their times; of the others
        `clients` are asked at a time. Raises `Refused`."""
        for case in cases[:alone]:
            yield self.ask(case, is_alone=True)
        with ThreadPoolExecutor(clients) as pool:
            try:
                yield from pool.map(lambda case: self.ask(case, is_alone=clients == 1), cases[alone:])
            finally:
                pool.shutdown(cancel_futures=True)

    def ask(self, case: Case, *, is_alone: bool) -> Case:
        """The arms in an order drawn for the case: what an engine still has of the last arm's prompt then favours
        none."""
        for arm in seeded(f"arms {case.name}").sample(list(self.arms), len(self.arms)):
            if time.monotonic() < self.until and not self.record.has(case.name, arm.name):
                self.record.add(self.reader.ask(case, arm, is_alone=is_alone))
        return case
