"""One replica of an embedding or rerank model: vLLM with payers in turn before it, or an encoder in workers."""

from __future__ import annotations

import asyncio
import logging
from bisect import insort
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from compression.pipeline.errors import (
    CompressionError,
    CompressionTimedOut,
    CompressorOverloaded,
    CompressorUnavailable,
    TextTooLong,
)
from compression.pipeline.served import JobTerms
from compression.retrieval.job import Answer, EncoderSpec
from compression.retrieval.job import RetrievalJob as WorkerJob
from compression.workers.plan import plan_of
from compression.workers.pooled_model import PooledModel, start_encoder
from models.engine import EngineFault
from models.retrieval import Computed, RetrievalJob, RetrievalReplica, RetrievalSpec
from serve.config.retrieval_models import RetrievalModelSettings, spec_of_retrieval


class NoTurn(Exception):
    """As much waits as may."""


@dataclass(eq=False, slots=True)
class _Waiting:
    place: int
    number: int
    payer: str
    size: int
    begins: asyncio.Future[None]

    def __lt__(self, other: _Waiting) -> bool:
        return (self.place, self.number) < (other.place, other.number)


class Turns:
    """Fair queueing: a place is where the payer's work before it ends, and none is before what has begun already, so
    nothing is overtaken forever. `room`: the sizes that run at once, or a single larger one. `most`: how
    many run and wait; above it the payer with the most waiting loses the last of them.
    """

    def __init__(self, *, room: int, most: int) -> None:
        self._room = room
        self._most = most
        self._waiting: list[_Waiting] = []
        self._running = 0
        self._running_size = 0
        self._began = 0
        self._number = 0
        self._ahead: dict[str, int] = {}

    @asynccontextmanager
    async def turn(self, payer: str, size: int) -> AsyncIterator[None]:
        """Raises `NoTurn`, at once or when it has to give way to who has less."""
        self._make_room(payer)
        mine = self._queued(payer, size)
        try:
            self._begin_what_fits()
            await mine.begins
            yield
        finally:
            self._leave(mine)

    def _queued(self, payer: str, size: int) -> _Waiting:
        place = max(self._began, self._ahead.get(payer, 0))
        ahead = {who: at for who, at in self._ahead.items() if at > self._began}
        self._ahead = {**ahead, payer: place + size + 1}
        self._number += 1
        mine = _Waiting(place, self._number, payer, size, asyncio.get_running_loop().create_future())
        insort(self._waiting, mine)
        return mine

    def _make_room(self, payer: str) -> None:
        if self._running + len(self._waiting) < self._most:
            return
        # Who has left already, but has not been told, is no waiter.
        waiting = [one for one in self._waiting if not one.begins.done()]
        counts = Counter(one.payer for one in waiting)
        for most_of, most in counts.most_common(1):
            if most > counts[payer] + 1:
                last = max(one for one in waiting if one.payer == most_of)
                self._waiting.remove(last)
                last.begins.set_exception(NoTurn())
                return
        raise NoTurn

    def _begin_what_fits(self) -> None:
        while self._waiting and (
            not self._running or self._running_size + self._waiting[0].size <= self._room
        ):
            first = self._waiting.pop(0)
            if first.begins.done():
                continue
            self._running += 1
            self._running_size += first.size
            self._began = max(self._began, first.place)
            first.begins.set_result(None)

    def _leave(self, mine: _Waiting) -> None:
        """Whatever became of it."""
        if mine in self._waiting:
            self._waiting.remove(mine)
        elif mine.begins.done() and not mine.begins.cancelled() and mine.begins.exception() is None:
            self._running -= 1
            self._running_size -= mine.size
        self._begin_what_fits()


# A larger job waits behind smaller ones.
LARGE_BYTES = 64 * 1024


# Of texts that vLLM has at once, or a single request's: enough for its batches, and what who comes next waits for.
AT_ONCE_BYTES = 512 * 1024


async def start_replica(model: RetrievalModelSettings) -> RetrievalReplica:
    """Load its checkpoint. Raises what the engine's start raises."""
    spec = spec_of_retrieval(model)
    if model.engine.kind == "vllm":
        engine = await start_vllm(spec, forks_cores=model.accelerator.kind == "cpu")
        return InTurn(engine, Turns(room=AT_ONCE_BYTES, most=model.max_waiting))
    return await start_encoder_replica(model, spec)


class InTurn:
    """A `models.retrieval.RetrievalReplica` on one that begins whatever it is given: projects take turns before it."""

    def __init__(self, engine: RetrievalReplica, turns: Turns) -> None:
        self._engine = engine
        self._turns = turns

    async def compute(self, job: RetrievalJob, *, payer: str) -> Computed | EngineFault:
        try:
            async with self._turns.turn(payer, job.size):
                return await self._engine.compute(job, payer=payer)
        except NoTurn:
            return EngineFault("unavailable", "as much is waiting for this model as may wait")

    def check(self) -> None:
        self._engine.check()

    async def stop(self) -> None:
        await self._engine.stop()


async def start_vllm(spec: RetrievalSpec, *, forks_cores: bool) -> RetrievalReplica:
    # Here, since only this process is to carry vLLM's weight.
    from models.vllm.core_process import fork_cores
    from models.vllm.pooling import start

    if forks_cores:
        fork_cores()
    return await start(spec)


class EncoderReplica:
    """A `models.retrieval.RetrievalReplica` on an encoder in worker processes."""

    def __init__(self, model: PooledModel) -> None:
        self._model = model

    async def compute(self, job: RetrievalJob, *, payer: str) -> Computed | EngineFault:
        return await computed_in_pool(self._model, job, JobTerms(payer=payer))

    def check(self) -> None:
        self._model.check()

    async def stop(self) -> None:
        await self._model.close()


async def start_encoder_replica(model: RetrievalModelSettings, spec: RetrievalSpec) -> EncoderReplica:
    """Raises `WorkerCannotStart`, which says why."""
    engine = model.engine
    encoder = EncoderSpec(
        spec.does,
        spec.checkpoint,
        spec.revision,
        spec.context_length,
        device="cuda" if model.accelerator.kind == "gpu" else "cpu",
        memory_share=model.accelerator.share,
        dtype=engine.dtype,
        threads=engine.threads,
        batch_tokens=engine.batch_tokens,
    )
    plan = plan_of(
        "encoder",
        workers=1,
        large_bytes=LARGE_BYTES,
        max_waiting=model.max_waiting,
        deadline_s=model.deadline_s,
    )
    return EncoderReplica(await start_encoder(encoder, plan))


log = logging.getLogger(__name__)


class Retrieves(Protocol):
    """Work in processes that can be ended."""

    async def retrieve(self, job: WorkerJob, terms: JobTerms) -> Answer: ...


async def computed_in_pool(pool: Retrieves, job: RetrievalJob, terms: JobTerms) -> Computed | EngineFault:
    """What the workers make of it. Refusals and failures are values; an unexpected cause is not disclosed."""
    try:
        answer = await pool.retrieve(_worker_job(job), terms)
        return Computed(answer.tokens, answer.width, answer.data)
    except CompressionError as error:
        is_too_long = isinstance(error, TextTooLong)
        return EngineFault("rejected", error.message, error.field, is_too_long=is_too_long)
    except (CompressorOverloaded, CompressorUnavailable):
        return EngineFault("unavailable", "as much is waiting for this model as may wait")
    except CompressionTimedOut as error:
        return EngineFault("timed_out", str(error))
    except Exception:
        log.exception("a retrieval job failed")
        return EngineFault("failed", "the model failed while it worked on this request")


def _worker_job(job: RetrievalJob) -> WorkerJob:
    return WorkerJob(
        does=job.does,
        texts=job.texts,
        longest=job.longest,
        queries=job.queries,
        dimensions=job.dimensions,
        cut=job.cut,
        only_counts=job.only_counts,
    )
