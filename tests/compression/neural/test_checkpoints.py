"""What is refused: checkpoints that are missing, of another kind, pickled, or that bring code to run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.sample_checkpoints import Architecture
from compression.neural.batching import CheckpointRefused
from compression.neural.checkpoints import TextTokenizer, find_checkpoint
from compression.neural.encoder import Encoder
from compression.neural.networks import Placement
from compression.neural.query_classifier import QueryClassifier
from compression.neural.token_classifier import TokenClassifier


@pytest.fixture
def folder(tmp_path: Path, checkpoints: dict[Architecture, Path]) -> Path:
    return Path(shutil.copytree(checkpoints["bert"], tmp_path / "checkpoint"))


def test_pickled_weights_are_not_read(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointRefused, match="safetensors"):
        find_checkpoint(str(folder))


def test_code_in_a_checkpoint_is_never_run(folder: Path, tmp_path: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "surprise", "auto_map": {"AutoConfig": "surprise.Config"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "surprise.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(CheckpointRefused):
        TokenClassifier.load(str(folder), Placement())
    assert not (tmp_path / "ran").exists()


def test_weights_that_lack_the_head_are_refused(minilm: Path) -> None:
    with pytest.raises(CheckpointRefused, match="classifier"):
        TokenClassifier.load(str(minilm), Placement())


def test_what_is_no_encoder_and_no_query_classifier_is_refused(folder: Path) -> None:
    with pytest.raises(CheckpointRefused):
        Encoder.load(str(folder), Placement())
    with pytest.raises(CheckpointRefused, match="base_model_config"):
        QueryClassifier.load(str(folder), Placement())


def test_the_error_names_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CheckpointRefused, match="nowhere"):
        find_checkpoint(str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("architecture", "before", "between", "after"),
    [
        ("bert", 1, 1, 1),
        ("xlm-roberta", 1, 2, 1),
        ("modernbert", 1, 1, 1),
    ],
)
def test_special_tokens_are_those_of_the_tokenizer(
    architecture: Architecture, before: int, between: int, after: int, checkpoints: dict[Architecture, Path]
) -> None:
    tokenizer = TextTokenizer.load(checkpoints[architecture])
    pair = tokenizer.pair
    assert (len(pair.before), len(pair.between), len(pair.after)) == (before, between, after)
    whole = tokenizer.backend.encode("the plan", "the budget")
    asked, context = tokenizer.tokens("the plan").ids, tokenizer.tokens("the budget").ids
    window = tokenizer.pair_window(asked, context)
    assert list(window.ids) == whole.ids
    assert list(window.types or ()) == whole.type_ids
