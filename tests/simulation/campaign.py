"""Many schedules on several processes, and what was found in them."""

from __future__ import annotations

import gc
import logging
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from tests.simulation.schedule import Result, Stage, run_seed
from tests.simulation.server import Parts

CHUNK = 250


@dataclass
class Findings:
    """Figures of many schedules; `failed` are those with violations, which their seeds bring back."""

    schedules: int = 0
    steps: int = 0
    transactions: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failed: list[Result] = field(default_factory=list)

    def add(self, result: Result) -> None:
        self.schedules += 1
        self.steps += result.steps
        self.transactions += result.commits
        self.outcomes.update(result.outcomes)
        if result.violations:
            self.failed.append(result)

    def join(self, other: Findings) -> None:
        self.schedules += other.schedules
        self.steps += other.steps
        self.transactions += other.transactions
        self.outcomes.update(other.outcomes)
        self.failed += other.failed


_stage: Stage | None = None


def stage() -> Stage:
    """This process's databases, made on first use."""
    global _stage
    if _stage is None:
        _stage = Stage()
    return _stage


def run_here(seeds: range, *, parts: Parts | None = None) -> Iterator[Result]:
    """One after another, in this process. What its servers log is not kept: a fault is no news here."""
    log = logging.getLogger("billing")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        for seed in seeds:
            yield run_seed(seed, stage(), parts=parts)
    finally:
        log.setLevel(level)


def run_many(
    first: int,
    schedules: int,
    *,
    workers: int,
    stop_after: int = 20,
    parts: Callable[[], Parts] = Parts,
) -> Iterator[Findings]:
    """Chunk after chunk, as they are done; ends early when `stop_after` schedules failed. Each process makes its parts
    itself."""
    seeds = range(first, first + schedules)
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    failed = 0
    with multiprocessing.get_context("forkserver").Pool(workers) as pool:
        for findings in pool.imap(partial(_run_chunk, parts), chunks):
            yield findings
            failed += len(findings.failed)
            if failed >= stop_after:
                return


def _run_chunk(parts: Callable[[], Parts], seeds: range) -> Findings:
    # The collector would look through all of the modules again and again.
    gc.collect()
    gc.freeze()
    findings = Findings()
    for result in run_here(seeds, parts=parts()):
        findings.add(result)
    return findings
