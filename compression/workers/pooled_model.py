"""A compression model whose work is done by a pool of processes."""

import logging
from typing import Any

from compression.pipeline.compression_model import (
    NO_TERMS,
    CompressionRequest,
    CompressionResult,
    JobTerms,
    check_texts,
)
from compression.pipeline.errors import CompressorFailed
from compression.pipeline.spec import ModelSpec
from compression.retrieval.job import Answer, EncoderSpec, RetrievalJob
from compression.scorers.kinds import KINDS
from compression.workers.fork_server import Program, Spawner
from compression.workers.lanes import PoolObserver, PoolPlan, Unobserved
from compression.workers.messages import Compress, Count, Job, Retrieve, done_of, packed
from compression.workers.pool import NOT_SENT, Pool

log = logging.getLogger(__name__)
# By name: what they import is for the workers' processes, and not for this one.
_PLAIN, _NEURAL = "compression.workers.programs:plain", "compression.workers.programs:neural"
_ENCODER = "compression.workers.programs:encoder"
# Of numpy. The tokenizer and torch have their own threads, from after the fork.
_ONE_BLAS_THREAD = (("OPENBLAS_NUM_THREADS", "1"),)
# A fork takes milliseconds, loading a network takes as long as its download.
_FORKED_S, _LOADED_S = 60.0, 1800.0


class PooledModel:
    """The `CompressionModel` of a server. It raises what `Pool.run` does, and what compressing raises."""

    def __init__(self, pool: Pool, spawner: Spawner) -> None:
        self._pool = pool
        self._spawner = spawner

    async def compress(self, request: CompressionRequest, terms: JobTerms = NO_TERMS) -> CompressionResult:
        found: CompressionResult = (await self._run(Compress(request), terms)).result
        return found

    async def count_tokens(self, text: str, terms: JobTerms = NO_TERMS) -> int:
        """As receipts count it."""
        return int((await self._run(Count(text), terms)).tokens)

    async def retrieve(self, job: RetrievalJob, terms: JobTerms = NO_TERMS) -> Answer:
        """An answer of a model with the lexical scorer's weights."""
        found: Answer = (await self._run(Retrieve(job), terms)).answer
        return found

    def check(self) -> None:
        """Raises `WorkerCannotStart` where there are no processes and none can be started."""
        self._pool.check()

    async def close(self) -> None:
        await self._pool.close()
        self._spawner.close()

    async def _run(self, job: Job, terms: JobTerms) -> Any:
        try:
            payload = packed(job)
        except Exception as error:
            if isinstance(job, Compress):
                # What is no text is refused by name, and never gets to a process.
                check_texts(job.request)
            log.exception("a job cannot be sent to a worker")
            raise CompressorFailed(NOT_SENT) from error
        return done_of(await self._pool.run(payload, terms=terms))


async def start_encoder(
    spec: EncoderSpec, plan: PoolPlan, observer: PoolObserver | None = None
) -> PooledModel:
    """The same of an encoder, which only retrieves. Raises `WorkerCannotStart`."""
    spawner = Spawner(Program(_ENCODER, spec, environment=_ONE_BLAS_THREAD), start_s=_LOADED_S)
    return await _started(spawner, plan, observer)


async def start_model(spec: ModelSpec, plan: PoolPlan, observer: PoolObserver | None = None) -> PooledModel:
    """Start the processes of a model; returns when it can work. Raises `WorkerCannotStart`."""
    if KINDS[spec.kind].has_network:
        spawner = Spawner(Program(_NEURAL, spec, environment=_ONE_BLAS_THREAD), start_s=_LOADED_S)
    else:
        spawner = Spawner(Program(_PLAIN, spec), start_s=_FORKED_S)
    return await _started(spawner, plan, observer)


async def _started(spawner: Spawner, plan: PoolPlan, observer: PoolObserver | None) -> PooledModel:
    pool = Pool(spawner.start, plan, observer or Unobserved())
    try:
        await pool.start()
    except BaseException:
        await pool.close()
        spawner.close()
        raise
    return PooledModel(pool, spawner)
