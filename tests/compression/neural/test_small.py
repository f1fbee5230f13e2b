"""The small classifier that is made here: what is claimed of it, and no more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import compression.neural
from compression.neural.networks import Placement
from compression.neural.token_classifier import TokenClassifier
from compression.neural.words import Judge, split_words

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
    job = classifier.tokens_job([(0, len(text))], [classifier.tokenizer.tokens(text)])
    scored = job.finish(classifier.network.run(job.windows))
    words = split_words(text, (0, len(text)), [start for start, _ in scored.offsets])
    probabilities = Judge(scored.offsets, scored.kept).judge(words).kept
    kept = {text[word.start : word.end]: found for word, found in zip(words, probabilities, strict=True)}
    assert min(kept[word] for word in content) > max(kept[word] for word in filler)


def test_its_record_says_how_it_was_made() -> None:
    record = json.loads((FOLDER / "training.json").read_text())
    assert record["seed"] and record["texts"] > 1000 and 0.9 < record["agreement"] <= 1
