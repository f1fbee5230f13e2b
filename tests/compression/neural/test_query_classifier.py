"""Heads loaded from the published format, against the arithmetic of that format done by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks.sample_checkpoints import TEXTS
from compression.neural.batching import CheckpointRefused, QueryTooLong, Windows
from compression.neural.networks import Placement
from compression.neural.query_classifier import QueryClassifier
from compression.source.units import Document, Segmentation, Unit

QUERY = "the plan of the committee"


def two_units(left: str, right: str) -> Segmentation:
    source = left + right
    units = (
        Unit(0, len(left.rstrip()), "sentence", 0, 0),
        Unit(len(left), len(source), "sentence", 0, 0),
    )
    return Segmentation(source, units, (Document(0, len(source), (0, 2), None),))


def by_hand(
    classifier: QueryClassifier, folder: Path, parts: tuple[str, str], *, before_norm: bool
) -> list[float]:
    """Mean keep probability of each part's tokens, from the reranker's states and the head's weights."""
    network: Any = classifier.network
    weights = load_file(folder / "model.safetensors")
    tokenizer = classifier.tokenizer
    ids = [tokenizer.tokens(part).ids for part in parts]
    window = tokenizer.pair_window(tokenizer.tokens(QUERY).ids, ids[0] + ids[1])
    with torch.inference_mode():
        base = network.model.base_model
        states = base(input_ids=torch.tensor([window.ids]), output_hidden_states=True)
        last = states.last_hidden_state[0]
        if before_norm:
            tapped = []
            hook = base.final_norm.register_forward_pre_hook(lambda _, found: tapped.append(found[0]))
            base(input_ids=torch.tensor([window.ids]))
            hook.remove()
            last = tapped[0][0]
        logits = last @ weights["pruning_head.classifier.weight"].T + weights["pruning_head.classifier.bias"]
    kept = torch.softmax(logits, -1)[:, 1].numpy()
    after = len(tokenizer.pair.after)
    middle = len(kept) - after - len(ids[1])
    return [float(kept[middle - len(ids[0]) : middle].mean()), float(kept[middle : len(kept) - after].mean())]


@pytest.mark.parametrize(
    ("kind", "before_norm"), [("modernbert", True), ("older", True), ("xlm-roberta", False)]
)
def test_a_unit_scores_the_mean_of_its_tokens(
    kind: str, before_norm: bool, query_checkpoints: dict[str, Path]
) -> None:
    folder = query_checkpoints[kind]
    classifier = QueryClassifier.load(str(folder), Placement())
    parts = ("The committee met to discuss it. ", "The plan was not ready.")
    expected = by_hand(classifier, folder, parts, before_norm=before_norm)
    np.testing.assert_allclose(classifier.score(QUERY, two_units(*parts)), expected, atol=1e-5)


def test_the_state_before_the_last_norm_is_another(query_checkpoints: dict[str, Path]) -> None:
    """What transformers 5 would feed the head is not what it was trained on."""
    text = two_units("The committee met to discuss it. ", "The plan was not ready.")
    folder = str(query_checkpoints["modernbert"])
    before = QueryClassifier.load(folder, Placement()).score(QUERY, text)
    after = QueryClassifier.load(folder, Placement(), before_norm=False)
    assert not np.allclose(before, after.score(QUERY, text), atol=1e-3)


@pytest.mark.parametrize("kind", ["modernbert", "xlm-roberta"])
def test_the_query_matters(kind: str, query_checkpoints: dict[str, Path]) -> None:
    classifier = QueryClassifier.load(str(query_checkpoints[kind]), Placement())
    text = two_units("The committee met to discuss it. ", "The plan was not ready.")
    assert not np.allclose(classifier.score(QUERY, text), classifier.score("budget of 2024", text), atol=1e-4)


@pytest.mark.parametrize("kind", ["modernbert", "xlm-roberta"])
def test_a_long_document_is_seen_whole_through_overlapping_windows(
    kind: str, query_checkpoints: dict[str, Path]
) -> None:
    classifier = QueryClassifier.load(str(query_checkpoints[kind]), Placement(), windows=Windows(overlap=16))
    text = two_units(TEXTS[0] + " " + TEXTS[1] + " ", TEXTS[5])
    job = classifier.score_job(QUERY, text)
    assert len(job.windows) > 1 and all(len(window) <= 96 for window in job.windows)
    scores = classifier.score(QUERY, text)
    assert all(0 < score < 1 for score in scores)


def test_a_query_that_leaves_no_room_is_refused(query_checkpoints: dict[str, Path]) -> None:
    classifier = QueryClassifier.load(str(query_checkpoints["modernbert"]), Placement())
    with pytest.raises(QueryTooLong, match="query"):
        classifier.score("budget " * 200, two_units("One. ", "Two."))


@pytest.mark.parametrize("lost", ["pruning_head.classifier.bias", "ranking_model.classifier.weight"])
def test_a_checkpoint_that_lacks_weights_is_refused(
    lost: str, query_checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(query_checkpoints["modernbert"], tmp_path / "copy"))
    weights = load_file(folder / "model.safetensors")
    del weights[lost]
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(CheckpointRefused, match="classifier"):
        QueryClassifier.load(str(folder), Placement())


def test_the_published_configuration_needs_no_code(query_checkpoints: dict[str, Path]) -> None:
    config = json.loads((query_checkpoints["modernbert"] / "config.json").read_text())
    assert "auto_map" in config, "the sample names code as the published ones do"
    QueryClassifier.load(str(query_checkpoints["modernbert"]), Placement())
