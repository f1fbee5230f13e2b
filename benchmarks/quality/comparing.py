"""The baselines over all tasks, in two processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path

from benchmarks.evaluation.case import Task
from benchmarks.load.bars import bars
from benchmarks.quality.baselines import suited
from benchmarks.quality.llmlingua2 import NAME, LLMLingua2
from benchmarks.quality.scoring import Outcome, judge

PROCESSES = 2


def _compared(task: Task) -> list[Outcome]:
    assert task.ratio is not None
    return [judge(task, name, select(task.case, task.ratio)) for name, select in suited(task.case)]


def _with_ratio(tasks: Sequence[Task]) -> list[Task]:
    return [task for task in tasks if task.ratio is not None]


def compare(tasks: Sequence[Task], processes: int = PROCESSES) -> Iterator[Outcome]:
    """Every baseline that suits a task, which can be given a ratio only; in the order of the tasks."""
    asked = _with_ratio(tasks)
    with get_context("spawn").Pool(processes) as pool, bars() as progress:
        found = pool.imap(_compared, asked, chunksize=16)
        for outcomes in progress.track(found, total=len(asked), description="baselines"):
            yield from outcomes


def compare_llmlingua(tasks: Sequence[Task], checkpoint: Path) -> Iterator[Outcome]:
    """LLMLingua-2 over all tasks. Raises `FileNotFoundError` where the folder holds no checkpoint."""
    original = LLMLingua2.load(checkpoint)
    with bars() as progress:
        for task in progress.track(_with_ratio(tasks), description=NAME):
            assert task.ratio is not None
            yield judge(task, NAME, original.select(task.case, task.ratio))
