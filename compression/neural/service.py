"""Runs the jobs of concurrent requests on one network, their windows batched together. Knows asyncio, no Ray."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from compression.neural.windows import (
    Floats,
    Job,
    Network,
    NeuralClosed,
    NeuralOverloaded,
    Result,
    Window,
    next_batch,
)

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
