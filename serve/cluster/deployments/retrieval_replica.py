"""One replica of an embedding or rerank model: vLLM with payers in turn before it, or an encoder in workers."""

from __future__ import annotations

import logging
from typing import Protocol

from compression.pipeline.compression_model import JobTerms
from compression.pipeline.errors import (
    CompressionError,
    CompressionTimedOut,
    CompressorOverloaded,
    CompressorUnavailable,
    TextTooLong,
)
from compression.retrieval.job import Answer, EncoderSpec
from compression.retrieval.job import RetrievalJob as WorkerJob
from compression.workers.lanes import plan_of
from compression.workers.pooled_model import PooledModel, start_encoder
from models.embedding_backends import Computed, RetrievalJob, RetrievalReplica, RetrievalSpec, start_backend
from models.engine import EngineFault
from serve.config.retrieval_models import RetrievalModelSettings, spec_of_retrieval
from serve.fairness.places import FairPlaces, QueueFull
from serve.fairness.queue import Claim

log = logging.getLogger(__name__)


# A larger job waits behind smaller ones.
LARGE_BYTES = 64 * 1024


# Of texts that vLLM has at once, or a single request's: enough for its batches, and what who comes next waits for.
AT_ONCE_BYTES = 512 * 1024


async def start_replica(model: RetrievalModelSettings) -> RetrievalReplica:
    """Load its checkpoint. Raises what the engine's start raises."""
    spec = spec_of_retrieval(model)
    if model.engine.kind == "encoder":
        return await start_encoder_replica(model, spec)
    if model.engine.kind == "vllm" and model.accelerator.kind == "cpu":
        # Here, since only this process is to carry vLLM's weight.
        from models.vllm.core_process import fork_cores

        fork_cores()
    engine = await start_backend(model.engine.kind, spec)
    return InTurn(engine, room=AT_ONCE_BYTES, most=model.max_waiting)


class InTurn:
    """A `RetrievalReplica` on one that begins whatever it is given: projects take turns before it."""

    def __init__(self, engine: RetrievalReplica, *, room: int, most: int) -> None:
        """`room`: bytes of texts that run at once, or a single larger request. `most`: how many run and wait; above it
        the project with the longest line loses its newest."""
        self._engine = engine
        self._places = FairPlaces(lambda: room)
        self._most = most
        self._running = 0

    async def compute(self, job: RetrievalJob, *, payer: str) -> Computed | EngineFault:
        claim = Claim(payer, 1, places=job.size, tokens=job.size)
        self._places.max_waiting = self._most - self._running
        try:
            if not self._places.max_waiting:
                raise QueueFull
            place = await self._places.enter(claim)
        except QueueFull:
            return EngineFault("unavailable", "as much is waiting for this model as may wait")
        self._running += 1
        try:
            return await self._engine.compute(job, payer=payer)
        finally:
            self._running -= 1
            if place is not None:
                self._places.leave(place, used_tokens=job.size)

    def check(self) -> None:
        self._engine.check()

    async def stop(self) -> None:
        await self._engine.stop()


class EncoderReplica:
    """A `models.embedding_backends.RetrievalReplica` on an encoder in worker processes."""

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


class Retrieves(Protocol):
    """Work in processes that can be ended."""

    async def retrieve(self, job: WorkerJob, terms: JobTerms) -> Answer: ...


async def computed_in_pool(pool: Retrieves, job: RetrievalJob, terms: JobTerms) -> Computed | EngineFault:
    """The workers' answer. Refusals and failures are values; an unexpected cause is not disclosed."""
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
