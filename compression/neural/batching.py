"""Windows of token ids, the jobs made of them, and the service that runs those of concurrent requests in batches."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from compression.pipeline.spec import ModelSpec


class CheckpointRefused(ValueError):
    """A checkpoint that cannot be used: missing, of another kind, or only loadable by running its code."""

    def __init__(self, checkpoint: str, reason: str) -> None:
        super().__init__(f"checkpoint {checkpoint!r}: {reason}")
        self.checkpoint = checkpoint
        self.reason = reason


class NeuralOverloaded(RuntimeError):
    """More tokens wait for the network than it may let wait."""

    def __init__(self, waiting_tokens: int, limit: int) -> None:
        super().__init__(f"{waiting_tokens} tokens wait for the compression network, more than {limit} may")
        self.waiting_tokens = waiting_tokens
        self.limit = limit


class NeuralClosed(RuntimeError):
    """The service was closed before the work was done."""


class QueryTooLong(ValueError):
    """A query that leaves no room for context in a window."""

    def __init__(self, tokens: int, limit: int) -> None:
        super().__init__(
            f"query: {tokens} tokens, more than the {limit} that leave room for context in a window"
        )
        self.tokens = tokens
        self.limit = limit


class LLMLinguaUnavailable(RuntimeError):
    """The library llmlingua is not installed, or the encoding by which it weighs words could not be loaded."""


def next_batch(lengths: Sequence[int], token_budget: int) -> list[int]:
    """Indices of the windows to run next; `lengths` are those that wait, the oldest first.

    The oldest is always among them, so none waits forever; the others are the nearest to it in length, as many as
    keep `longest * number` within the budget. A window longer than the budget runs alone.
    """
    order = sorted(range(len(lengths)), key=lambda index: (lengths[index], index))
    first = last = order.index(0)
    while True:
        grown = _grow(lengths, order, first, last, token_budget)
        if grown == (first, last):
            return order[first : last + 1]
        first, last = grown


def _grow(lengths: Sequence[int], order: list[int], first: int, last: int, budget: int) -> tuple[int, int]:
    """The range of `order` widened by one at the side that wastes less, or as it was where neither fits."""
    count, longest = last - first + 2, lengths[order[last]]
    below = longest - lengths[order[first - 1]] if first > 0 and longest * count <= budget else None
    above = None
    if last + 1 < len(order) and lengths[order[last + 1]] * count <= budget:
        above = (lengths[order[last + 1]] - longest) * (count - 1)
    if below is None and above is None:
        return first, last
    if above is None or (below is not None and below <= above):
        return first - 1, last
    return first, last + 1


def plan_batches(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """All windows in batches, the longest first, `longest * number` of each within the budget."""
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    batches: list[list[int]] = []
    for index in order:
        if batches and lengths[batches[-1][0]] * (len(batches[-1]) + 1) <= token_budget:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


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


@dataclass(frozen=True, slots=True)
class Windows:
    """Tokens of a window with its special ones (None: as the checkpoint says), those that neighbours share, and of
    a batch with its padding."""

    size: int | None = None
    overlap: int = 0
    token_budget: int = 4096

    @classmethod
    def of(cls, spec: ModelSpec) -> Windows:
        return cls(spec.window, spec.overlap, spec.batch_tokens)


DEFAULT_WINDOWS = Windows()


def mean_of_tokens(
    ranges: Sequence[tuple[int, int]], outputs: Sequence[Floats], tokens: int, start: int
) -> Floats:
    """One number a token, the mean over the windows that hold it. A window's output has its own tokens' from `start`
    on; `ranges` are half-open."""
    total, seen = np.zeros(tokens, np.float32), np.zeros(tokens, np.float32)
    for (first, last), output in zip(ranges, outputs, strict=True):
        total[first:last] += output[start : start + last - first]
        seen[first:last] += 1
    mean: Floats = total / np.maximum(seen, 1)
    return mean


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


# Windows considered for a batch: beyond this many, a better fit is not worth sorting them all.
LOOKED_AT = 512


@dataclass(eq=False)
class _Request:
    outputs: list[Floats | None]
    missing: int
    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class _Waiting:
    request: _Request
    place: int
    window: Window
    turn: int


class NeuralService:
    """A network shared by requests. A batch is whatever waits when the network becomes free, within a token budget.
    Requests take turns, window by window, so that one of few windows does not wait for all of a long one.

    `max_waiting_tokens` bounds the queue: a request that would exceed it is refused with `NeuralOverloaded`, unless
    nothing waits. Use it from one event loop.
    """

    def __init__(self, network: Network, *, token_budget: int, max_waiting_tokens: int) -> None:
        self._network = network
        self._token_budget = token_budget
        self._limit = max_waiting_tokens
        self._queue: list[_Waiting] = []
        self._turn = 0
        self.waiting_tokens = 0
        self._worker: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="neural")
        self._closed = False

    async def run(self, job: Job[Result]) -> Result:
        """The job's result from its windows' outputs. Raises NeuralOverloaded, NeuralClosed."""
        outputs = await self._outputs(job.windows) if job.windows else []
        return job.finish(outputs)

    async def close(self) -> None:
        """Fails what waits, lets the batch in the network end, and frees its thread."""
        self._closed = True
        for waiting in self._queue:
            self._fail(waiting.request, NeuralClosed("the compression network is shutting down"))
        self._queue.clear()
        self.waiting_tokens = 0
        if self._worker is not None:
            await self._worker
        self._thread.shutdown(wait=False)

    async def _outputs(self, windows: Sequence[Window]) -> list[Floats]:
        self._admit(sum(map(len, windows)))
        request = _Request([None] * len(windows), len(windows), asyncio.get_running_loop().create_future())
        self._queue += [
            _Waiting(request, place, window, self._turn + place) for place, window in enumerate(windows)
        ]
        self._queue.sort(key=lambda waiting: waiting.turn)
        if self._worker is None:
            self._worker = asyncio.create_task(self._work(), name="neural batches")
        try:
            await request.done
        finally:
            self._forget(request)
        return [output for output in request.outputs if output is not None]

    def _admit(self, tokens: int) -> None:
        if self._closed:
            raise NeuralClosed("the compression network is shut down")
        waiting = self.waiting_tokens
        if waiting and waiting + tokens > self._limit:
            raise NeuralOverloaded(waiting + tokens, self._limit)
        self.waiting_tokens += tokens

    def _forget(self, request: _Request) -> None:
        """Removes a request's windows from the queue: a caller that left or failed costs no more forward passes."""
        left = [waiting for waiting in self._queue if waiting.request is not request]
        if len(left) != len(self._queue):
            self._queue = left
            self.waiting_tokens = sum(len(waiting.window) for waiting in left)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._queue:
                batch = self._take()
                try:
                    outputs = await loop.run_in_executor(
                        self._thread, self._network.run, [w.window for w in batch]
                    )
                except Exception as error:
                    for waiting in batch:
                        self._fail(waiting.request, error)
                else:
                    for waiting, output in zip(batch, outputs, strict=True):
                        self._deliver(waiting, output)
        finally:
            self._worker = None

    def _take(self) -> list[_Waiting]:
        seen = self._queue[:LOOKED_AT]
        self._turn = seen[0].turn
        chosen = set(next_batch([len(waiting.window) for waiting in seen], self._token_budget))
        batch = [seen[index] for index in sorted(chosen)]
        self._queue = [w for i, w in enumerate(seen) if i not in chosen] + self._queue[LOOKED_AT:]
        self.waiting_tokens -= sum(len(waiting.window) for waiting in batch)
        return batch

    @staticmethod
    def _deliver(waiting: _Waiting, output: Floats) -> None:
        request = waiting.request
        request.outputs[waiting.place] = output
        request.missing -= 1
        if request.missing == 0 and not request.done.done():
            request.done.set_result(None)

    @staticmethod
    def _fail(request: _Request, error: Exception) -> None:
        if not request.done.done():
            request.done.set_exception(error)
