"""What the neural kinds share: CPU work in one thread, batched forward passes in another, and bounds."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

from compression.neural.errors import NeuralClosed, NeuralOverloaded, QueryTooLong
from compression.neural.service import NeuralService
from compression.neural.windows import Floats, Job
from compression.pipeline.errors import (
    CompressorFailed,
    CompressorOverloaded,
    CompressorUnavailable,
    RefusedRequest,
)
from compression.pipeline.pipeline import Pipeline, Prepared
from compression.pipeline.request import CompressionRequest, CompressionResult
from compression.pipeline.served import NO_TERMS, JobTerms
from compression.pipeline.thread_work import done

Result = TypeVar("Result")
_LARGE_CHARS = 64 * 1024
# Of the request that the running task works on.
_is_large: ContextVar[bool] = ContextVar("_is_large")


@dataclass(frozen=True, slots=True)
class Running:
    """What a model runs on. `max_waiting` bounds the requests that are in it at once."""

    pipeline: Pipeline
    service: NeuralService
    max_waiting: int


class NeuralModel:
    """A compression model around a network; a subclass says in `_choose` what is kept."""

    def __init__(self, running: Running) -> None:
        self._pipeline = running.pipeline
        self._service = running.service
        self._max_waiting = running.max_waiting
        self._waiting = 0
        self._closed = False
        # A large text takes minutes where a small one takes milliseconds.
        self._threads = {
            is_large: ThreadPoolExecutor(1, thread_name_prefix="compress-large" if is_large else "compress")
            for is_large in (False, True)
        }

    async def compress(self, request: CompressionRequest, terms: JobTerms = NO_TERMS) -> CompressionResult:
        # The terms matter only where a model is shared between callers: `compression.workers`.
        del terms
        if self._closed:
            raise CompressorUnavailable("the compressor is shut down")
        if self._waiting >= self._max_waiting:
            raise CompressorOverloaded(f"{self._waiting} compressions are already waiting")
        self._waiting += 1
        _is_large.set(len(request.input) > _LARGE_CHARS)
        try:
            with network_errors_translated():
                return await self._compress(request)
        finally:
            self._waiting -= 1

    async def _compress(self, request: CompressionRequest) -> CompressionResult:
        prepared = await self._in_thread(self._pipeline.prepare, request)
        if not prepared.needs_scores:
            return await self._in_thread(self._pipeline.finish, prepared, ())
        return await self._choose(prepared)

    async def close(self) -> None:
        self._closed = True
        await self._service.close()
        for thread in self._threads.values():
            thread.shutdown(wait=False, cancel_futures=True)

    async def _choose(self, prepared: Prepared) -> CompressionResult:
        raise NotImplementedError

    async def _in_thread(self, work: Callable[..., Result], *arguments: object) -> Result:
        """Off the event loop, which must stay free for the others."""
        try:
            running = self._threads[_is_large.get()].submit(work, *arguments)
        except RuntimeError as error:
            raise CompressorUnavailable("the compressor is shutting down") from error
        return await done(running)

    async def _run(self, job: Job[Result]) -> Result:
        # `NeuralService.run` finishes a job on the event loop, which a long text would hold up.
        outputs: Sequence[Floats] = await self._service.run(Job(job.windows, list))
        return await self._in_thread(job.finish, outputs)


@contextmanager
def network_errors_translated() -> Iterator[None]:
    """Turns errors of the network into those of `compression.pipeline.errors`, which are all that a server knows."""
    try:
        yield
    except NeuralOverloaded as error:
        raise CompressorOverloaded(str(error)) from error
    except NeuralClosed as error:
        raise CompressorUnavailable(str(error)) from error
    except QueryTooLong as error:
        raise RefusedRequest("query", str(error).removeprefix("query: ")) from error
    except (CompressorUnavailable, CompressorFailed):
        raise
    except RuntimeError as error:  # what torch raises, for want of memory too, and ScoresMismatch
        raise CompressorFailed(f"{type(error).__name__}: {error}") from error
