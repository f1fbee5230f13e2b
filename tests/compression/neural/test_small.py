"""The small classifier that is made here: what is claimed of it, and no more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import compression.neural
from compression.neural.networks import Placement
from compression.neural.token_classifier import TokenClassifier

FOLDER = Path(compression.neural.__file__).parent / "small"


@pytest.fixture(scope="module")
def classifier() -> TokenClassifier:
    return TokenClassifier.load(str(FOLDER), Placement())


def test_it_weighs_less_than_two_megabytes() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 2_000_000


@pytest.mark.parametrize(
    ("text", "content", "filler"),
    [
        (
            "the singer was born in the city of Hamburg and was one of the best",
            ["singer", "Hamburg"],
            ["the", "of"],
        ),
        (
            "so I think that we should maybe look at the microphone of the remote",
            ["microphone"],
            ["that", "the"],
        ),
    ],
)
def test_it_keeps_content_words_before_filler(
    text: str, content: list[str], filler: list[str], classifier: TokenClassifier
) -> None:
    [words] = classifier.words_job(text, [(0, len(text))]).finish(
        classifier.network.run(classifier.words_job(text, [(0, len(text))]).windows)
    )
    kept = {text[word.start : word.end]: word.kept for word in words}
    assert min(kept[word] for word in content) > max(kept[word] for word in filler)


def test_its_record_says_how_it_was_made() -> None:
    record = json.loads((FOLDER / "training.json").read_text())
    assert record["seed"] and record["texts"] > 1000 and 0.9 < record["agreement"] <= 1
