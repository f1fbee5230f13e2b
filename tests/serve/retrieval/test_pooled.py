"""What becomes of a job whose worker refuses it, is overloaded, takes too long or dies; and the money of each."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from compression.pipeline.compression_model import NO_TERMS, JobTerms
from compression.pipeline.errors import (
    CompressionTimedOut,
    CompressorFailed,
    CompressorOverloaded,
    CompressorUnavailable,
    RefusedRequest,
    TextTooLong,
)
from compression.retrieval.job import Answer
from compression.retrieval.job import RetrievalJob as WorkerJob
from compression.workers.pooled_model import PooledModel
from models.embedding_backends import Computed, RetrievalJob
from models.engine import EngineFault
from serve.cluster.deployments.retrieval_replica import EncoderReplica, computed_in_pool
from tests.serve.retrieval.serving import retrieving

JOB = RetrievalJob("embed", ("a", (1, 2)), 32, dimensions=4)


class Pool:
    """A fake: it answers, or fails."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.asked: list[tuple[WorkerJob, JobTerms]] = []

    async def retrieve(self, job: WorkerJob, terms: JobTerms) -> Answer:
        self.asked.append((job, terms))
        if self.failure is not None:
            raise self.failure
        return Answer(3, 4, b"\0" * 32)


async def test_a_job_reaches_the_workers_as_it_is() -> None:
    pool, terms = Pool(), JobTerms(payer="p", deadline_s=5)
    assert await computed_in_pool(pool, JOB, terms) == Computed(3, 4, b"\0" * 32)
    ((job, given),) = pool.asked
    assert (job.does, job.texts, job.longest, job.dimensions, job.only_counts) == (
        "embed",
        ("a", (1, 2)),
        32,
        4,
        False,
    )
    assert given == terms


async def test_an_encoder_knows_whose_turn_it_is() -> None:
    pool = Pool()
    replica = EncoderReplica(cast("PooledModel", pool))
    assert await replica.compute(JOB, payer="p") == Computed(3, 4, b"\0" * 32)
    assert [terms.payer for _, terms in pool.asked] == ["p"]


FAILURES = [
    (RefusedRequest("input.1", "token 9 is unknown"), "rejected", 400),
    (TextTooLong("input.0", "has 40 tokens"), "rejected", 400),
    (CompressorOverloaded("256 compressions are already waiting"), "unavailable", 503),
    (CompressorUnavailable("the compressor is shut down"), "unavailable", 503),
    (CompressionTimedOut("not done within 5 s, waiting included; the work was ended"), "timed_out", 503),
    (CompressorFailed("the process that worked on this died"), "failed", 502),
    (MemoryError("at 0x7f"), "failed", 502),
]


@pytest.mark.parametrize(("failure", "kind", "status"), FAILURES, ids=lambda found: type(found).__name__)
async def test_each_failure_is_told_and_gives_the_hold_back(
    tmp_path: Path, failure: Exception, kind: str, status: int
) -> None:
    fault = await computed_in_pool(Pool(failure), JOB, NO_TERMS)
    assert isinstance(fault, EngineFault) and fault.kind == kind
    assert "0x7f" not in fault.message and "compress" not in fault.message
    async with retrieving(tmp_path) as here:
        here.fake.failure = fault.error()
        client = await here.post("embeddings", input=["a", "b"]).run()
        error = client.json()["error"]
        assert client.status == status
        assert (error["code"] == "context_length_exceeded") == isinstance(failure, TextTooLong)
        assert bool(client.reply_headers.get("retry-after")) == (status == 503)
        assert await here.costs() == []
        await here.served.assert_nothing_is_left_open()
