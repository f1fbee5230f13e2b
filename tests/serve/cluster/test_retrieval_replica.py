"""A rerank model's own processes, started from its configuration as a replica starts them, without Ray around it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.sample_checkpoints import config_of, train_tokenizer
from models.embedding_backends import Computed, RetrievalJob
from models.engine import EngineFault
from serve.cluster.deployments.retrieval_replica import start_replica
from serve.config.retrieval_models import RetrievalModelSettings

pytestmark = pytest.mark.integration
TEXTS = ("The committee met to discuss the budget.", "The plan was not ready.")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import AutoModelForSequenceClassification

    folder, tokenizer = tmp_path_factory.mktemp("cross-encoder"), train_tokenizer("bert")
    config = config_of("bert", tokenizer, layers=2, width=64)
    config.num_labels = 1
    torch.manual_seed(3)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return folder


async def test_an_encoder_answers_refuses_and_ends(checkpoint: Path) -> None:
    model = RetrievalModelSettings.model_validate(
        {
            "id": "cross",
            "kind": "rerank",
            "name": "Cross",
            "blurb": "For tests.",
            "checkpoint": str(checkpoint),
            "context_length": 64,
            "price": {"input_usd_per_mtok": 1},
            "engine": {"kind": "encoder", "threads": 1},
        }
    )
    replica = await start_replica(model)
    try:
        job = RetrievalJob("relate", TEXTS, 64, queries=("When is the budget discussed?",), cut=64)
        answer, counted = (
            await replica.compute(job, payer="p"),
            await replica.compute(job.counting(), payer="p"),
        )
        assert isinstance(answer, Computed) and isinstance(counted, Computed)
        assert counted.tokens == answer.tokens > 0 and answer.width == 1
        assert np.isfinite(np.frombuffer(answer.data, "<f4")).all()
        long = await replica.compute(RetrievalJob("relate", ("word " * 99,), 64, queries=("q",)), payer="p")
        assert isinstance(long, EngineFault)
        assert (long.kind, long.param, long.is_too_long) == ("rejected", "documents", True)
        replica.check()
    finally:
        await replica.stop()
