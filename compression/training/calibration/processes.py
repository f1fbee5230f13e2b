"""Observes cases in processes of their own, each with the model loaded once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from multiprocessing import get_context
from typing import Any

from rich.progress import Progress

from benchmarks.quality import in_process
from benchmarks.quality.case import Case


def observed(kind: str, chosen: Sequence[Case], workers: int, progress: Progress) -> list[Any]:
    """Every case's observation, in order."""
    task = progress.add_task(f"{kind}: compressing", total=len(chosen))
    found = []
    with get_context("spawn").Pool(workers, _begin, (kind,)) as pool:
        for one in pool.imap(_observe, chosen, chunksize=2):
            found.append(one)
            progress.advance(task)
    return found


_observe_one: Any = None


def _begin(kind: str) -> None:
    """Loads the model once a process; numpy reads how many threads it may start when it is imported."""
    global _observe_one
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    from compression.build import build_scoring, load_counter
    from compression.training.calibration.questions import question_of
    from compression.tuning.observing import observe

    spec = in_process.spec_of(kind)
    score, counter = build_scoring(spec), load_counter(spec.tokenizer, name=spec.tokenizer_name)
    _observe_one = lambda case: observe(question_of(case), score, counter, spec.settings)  # noqa: E731


def _observe(case: Case) -> Any:
    return _observe_one(case)
