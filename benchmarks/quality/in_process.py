"""Compresses in processes of this machine, without a server: quick figures while one works on the models.

What is reported comes over HTTP; this builds the same model from its spec and runs the same pipeline.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.evaluation.case import Task
from benchmarks.evaluation.minilm import encoder_checkpoint
from benchmarks.quality.ablations import leave_out, selector
from benchmarks.quality.scoring import Outcome, Told, judge

if TYPE_CHECKING:
    from compression.pipeline.compression_model import BuiltModel
    from compression.pipeline.spec import ModelSpec

PROCESSES = 2
TOKENIZER = Path("models/embedded/tokenizer")
KINDS = ("lexical", "encoder")


class CannotCompress(RuntimeError):
    """The pipeline refused a task; the message has its reason and the case's name."""


def spec_of(kind: str) -> ModelSpec:
    """The model of a kind with its default settings. Raises `NoEncoder`, and `KeyError` for another kind."""
    # numpy starts its threads when it is imported, so nothing of compression is before a worker has said how many.
    from compression.pipeline.spec import ModelSpec

    if kind == "lexical":
        return ModelSpec("lexical", "lexical", str(TOKENIZER), "pith-mini")
    if kind == "encoder":
        checkpoint = str(encoder_checkpoint())
        return ModelSpec("encoder", "encoder", str(TOKENIZER), "pith-mini", checkpoint, threads=1)
    raise KeyError(kind)


class _Worker:
    """One process's model and the loop that it is awaited in."""

    def __init__(self, kind: str, without: str | None) -> None:
        from compression.build import build_model

        if without is not None:
            leave_out(without)
        self.selector = kind if without is None else selector(kind, without)
        self.model: BuiltModel = build_model(spec_of(kind))
        self.loop = asyncio.new_event_loop()

    def run(self, task: Task) -> Outcome:
        """Raises `CannotCompress`, which crosses a process as an error with fields of its own does not."""
        from compression.pipeline.compression_model import CompressionRequest
        from compression.pipeline.errors import CompressionError

        request = CompressionRequest(task.case.query, task.case.context, task.ratio, keep=task.keep)
        try:
            result = self.loop.run_until_complete(self.model.compress(request))
        except CompressionError as error:
            raise CannotCompress(f"{task.case.name} at {task.size}: {error}") from None
        receipt = result.receipt
        flags = {flag.code: flag.severity for flag in receipt.risk_flags}
        told = Told(receipt.compression_ratio, receipt.latency_ms, flags, receipt.evidence_kept_probability)
        return judge(task, self.selector, result.output, told)


_worker: _Worker | None = None


def _begin(kind: str, without: str | None) -> None:
    global _worker
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    _worker = _Worker(kind, without)


def _run(task: Task) -> Outcome:
    assert _worker is not None
    return _worker.run(task)


def outcomes(
    tasks: Sequence[Task], kind: str, processes: int = PROCESSES, *, without: str | None = None
) -> Iterator[Outcome]:
    """Each task's outcome, in the order given, one mechanism left out. Raises `NoEncoder` before anything runs, and
    `CannotCompress`."""
    if kind == "encoder":
        encoder_checkpoint()
    with get_context("spawn").Pool(processes, _begin, (kind, without)) as pool:
        yield from pool.imap(_run, tasks, chunksize=4)
