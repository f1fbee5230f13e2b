"""Retrieval jobs in the worker processes of a pool: the service's words for what compression's workers do."""

import logging
from typing import Protocol

from compression.pipeline.errors import (
    CompressionError,
    CompressionTimedOut,
    CompressorOverloaded,
    CompressorUnavailable,
    TextTooLong,
)
from compression.pipeline.served import JobTerms
from compression.retrieval.job import Answer
from compression.retrieval.job import RetrievalJob as WorkerJob
from models.engine import EngineFault
from models.retrieval import Computed, RetrievalJob

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
