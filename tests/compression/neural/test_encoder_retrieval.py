"""Encoders as embedding and rerank models: in one process, and in worker processes as a server has them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from compression.neural.batching import CheckpointRefused
from compression.neural.encoder import Encoder
from compression.neural.networks import Placement
from compression.pipeline.errors import RefusedRequest, TextTooLong
from compression.retrieval.encoding import EncoderRetrieval
from compression.retrieval.job import Answer, EncoderSpec, RetrievalJob
from compression.workers.lanes import plan_of
from compression.workers.pooled_model import PooledModel, start_encoder
from compression.workers.processes import WorkerCannotStart

TEXTS = ("The cat sat on the mat.", "A kitten lies on a rug.", "Shares fell sharply today.")
# One process serves the module.
pytestmark = pytest.mark.asyncio(loop_scope="module")
PLAN = plan_of("encoder", workers=1, large_bytes=65536, max_waiting=8, deadline_s=60)


def rows(answer: Answer) -> np.ndarray:
    return np.frombuffer(answer.data, "<f4").reshape(-1, answer.width)


@pytest.fixture(scope="module")
def cross(cross_encoder_checkpoint: Path) -> EncoderSpec:
    return EncoderSpec("relate", str(cross_encoder_checkpoint), None, 64, threads=1)


@pytest.fixture(scope="module")
def bi(minilm: Path) -> EncoderSpec:
    return EncoderSpec("embed", str(minilm), None, 256, threads=1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(bi: EncoderSpec) -> AsyncIterator[PooledModel]:
    model = await start_encoder(bi, PLAN)
    yield model
    await model.close()


async def test_a_bi_encoders_vectors_are_those_of_its_network_in_a_process_of_its_own(
    served: PooledModel, bi: EncoderSpec
) -> None:
    answer = await served.retrieve(RetrievalJob("embed", TEXTS, 256))
    vectors = rows(answer)
    assert vectors.shape == (3, 384) and np.allclose((vectors**2).sum(axis=1), 1, atol=1e-5)
    encoder = Encoder.load(bi.checkpoint, Placement(threads=1))
    assert vectors[0] @ vectors[1] == pytest.approx(encoder.compare(TEXTS[0], [TEXTS[1]])[0], abs=1e-4)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.3
    counted = await served.retrieve(RetrievalJob("embed", TEXTS, 256, only_counts=True))
    assert counted == Answer(answer.tokens) and answer.tokens == 9 + 9 + 7


async def test_tokens_stand_for_the_text_that_they_are_of(served: PooledModel, bi: EncoderSpec) -> None:
    ids = Encoder.load(bi.checkpoint, Placement(threads=1)).ids([TEXTS[0]])[0]
    both = rows(await served.retrieve(RetrievalJob("embed", (TEXTS[0], ids), 256)))
    assert np.allclose(both[0], both[1], atol=1e-5)
    with pytest.raises(RefusedRequest, match="token 99999 is not a token of this model"):
        await served.retrieve(RetrievalJob("embed", ((1, 99999),), 256))


async def test_a_text_that_is_too_long_is_refused_by_its_place(served: PooledModel) -> None:
    with pytest.raises(TextTooLong, match="302 tokens; this model's maximum context length is 256") as caught:
        await served.retrieve(RetrievalJob("embed", ("short", "word " * 300), 256))
    assert caught.value.field == "input.1"
    with pytest.raises(RefusedRequest, match="dimensions: must be at most 384"):
        await served.retrieve(RetrievalJob("embed", ("short",), 256, dimensions=385))


async def test_a_cross_encoder_gives_each_pair_its_probability_whoever_runs_beside_it(
    cross: EncoderSpec,
) -> None:
    model = EncoderRetrieval.load(cross)
    encoder = Encoder.load(cross.checkpoint, Placement(threads=1))
    answer = await model.do(RetrievalJob("relate", TEXTS, 64, queries=("the budget",)))
    assert np.allclose(rows(answer)[:, 0], encoder.compare("the budget", TEXTS), atol=1e-5)
    pairs = await model.do(RetrievalJob("relate", TEXTS, 64, queries=("the budget", "a plan", "x")))
    assert rows(pairs)[0] == pytest.approx(rows(answer)[0], abs=1e-5)


async def test_a_document_is_cut_where_that_is_asked_for_and_else_refused(cross: EncoderSpec) -> None:
    model = EncoderRetrieval.load(cross)
    long = "council " * 400
    cut = await model.do(RetrievalJob("relate", ("a", long), 64, queries=("the budget",), cut=64))
    assert cut.width == 1 and cut.tokens < 64 + 64
    with pytest.raises(TextTooLong) as caught:
        await model.do(RetrievalJob("relate", ("a", long), 64, queries=("the budget",)))
    assert caught.value.field == "documents.1"
    with pytest.raises(TextTooLong) as caught:
        await model.do(RetrievalJob("relate", ("a",), 64, queries=(long,), cut=64))
    assert caught.value.field == "query"


async def test_a_checkpoint_of_the_other_kind_cannot_start(cross: EncoderSpec, bi: EncoderSpec) -> None:
    with pytest.raises(CheckpointRefused, match="it compares pairs of texts"):
        EncoderRetrieval.load(replace(cross, does="embed"))
    with pytest.raises(WorkerCannotStart, match="it makes vectors"):
        await start_encoder(replace(bi, does="relate"), PLAN)
