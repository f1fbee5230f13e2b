"""What a network runs on: windows of token ids, and the jobs that turn its outputs into scores."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from compression.neural.batching import plan_batches

Floats = NDArray[np.float32]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Window:
    """Token ids of one forward pass, special tokens included. `types` are segment ids, where the model knows them."""

    ids: tuple[int, ...]
    types: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Job(Generic[Result]):
    """Windows to run, and what to make of their outputs, which come in the same order."""

    windows: tuple[Window, ...]
    finish: Callable[[Sequence[Floats]], Result]


class Network(Protocol):
    """Runs windows together; what an output holds is the network's business. Not for two threads at once."""

    def run(self, batch: Sequence[Window]) -> list[Floats]: ...


def run_job(network: Network, job: Job[Result], token_budget: int) -> Result:
    """The whole job at once, in this thread: for a command line and for tests. A server uses `NeuralService`."""
    outputs: list[Floats | None] = [None] * len(job.windows)
    for batch in plan_batches([len(window) for window in job.windows], token_budget):
        for index, output in zip(batch, network.run([job.windows[i] for i in batch]), strict=True):
            outputs[index] = output
    return job.finish([output for output in outputs if output is not None])


def cut(tokens: int, size: int, overlap: int, ends: Sequence[int] = ()) -> list[tuple[int, int]]:
    """Half-open windows over `tokens` tokens, each at most `size`, neighbours sharing about `overlap`.

    `ends` are sorted indices after which a sentence ends; a window stops at one in its last quarter where it can,
    so that few sentences are seen without their other half. Every token lies in a window.
    """
    if not 0 <= overlap < size:
        raise ValueError(f"overlap: {overlap} tokens do not fit windows of {size}")
    windows, start = [], 0
    while start < tokens:
        end = min(start + size, tokens)
        if end < tokens:
            end = _last_end(ends, max(start + size - size // 4, start + overlap + 1), end)
        windows.append((start, end))
        if end == tokens:
            break
        start = end - overlap
    return windows


def _last_end(ends: Sequence[int], least: int, most: int) -> int:
    at = bisect_right(ends, most) - 1
    return ends[at] if at >= 0 and ends[at] >= least else most
