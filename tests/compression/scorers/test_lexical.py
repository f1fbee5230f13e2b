"""The trained scorer with the weights that come with pith."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

from compression.features.network import BadWeights
from compression.scorers.lexical import WEIGHTS, LexicalScorer
from compression.segmentation import segment

RECORD = WEIGHTS.with_name("record.json")


@pytest.fixture(scope="module")
def scorer() -> LexicalScorer:
    return LexicalScorer.load()


@pytest.mark.parametrize(
    ("query", "source", "best"),
    [
        (
            "how many moons does mars have",
            "# Venus\nVenus has no moons. It is hot.\n\n# Mars\nIts two moons are Phobos and Deimos. It is red.",
            "Its two moons are Phobos and Deimos.",
        ),
        (
            "Wann wurde die Brücke gebaut?",
            "Die Stadt liegt am Fluss. Viele wohnen dort.\n\nDie alte Brücke wurde 1883 gebaut. Sie ist aus Stein.",
            "Die alte Brücke wurde 1883 gebaut.",
        ),
        ("谁写了这本书", "城市很大。河流很长。\n\n这本书是王小明写的。天气很好。", "这本书是王小明写的。"),
    ],
)
def test_the_unit_that_answers_scores_best(scorer: LexicalScorer, query: str, source: str, best: str) -> None:
    text = segment(source)
    scores = scorer.score(query, text)
    prose = [number for number, unit in enumerate(text.units) if unit.kind == "sentence"]
    assert text.text(max(prose, key=lambda number: scores[number])) == best


def test_the_member_with_the_exact_key_scores_best(scorer: LexicalScorer) -> None:
    keys = [f"{number:08x}-aaaa-bbbb" for number in range(1000, 1060)]
    source = json.dumps({key: f"value {number}" for number, key in enumerate(keys)})
    text = segment(source)
    scores = scorer.score(f'Extract the value of "{keys[42]}"', text)
    best = max(range(len(scores)), key=lambda number: scores[number])
    assert keys[42] in text.text(best)


def test_scores_are_probabilities_and_alike_every_time(scorer: LexicalScorer) -> None:
    text = segment("One thing. Another thing! " * 40)
    first = scorer.score("another", text)
    assert all(0 <= score <= 1 for score in first)
    assert list(first) == list(LexicalScorer.load().score("another", text))


def test_without_a_query_or_without_units_nothing_is_preferred(scorer: LexicalScorer) -> None:
    assert set(scorer.score("  ", segment("One. Two."))) == {0.0}
    assert list(scorer.score("anything", segment("\n \n"))) == []


def test_missing_and_foreign_weights_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no weights"):
        LexicalScorer.load(tmp_path / "none.npz")
    np.savez(tmp_path / "other.npz", x=np.zeros(1))
    with pytest.raises(BadWeights, match=r"other\.npz"):
        LexicalScorer.load(tmp_path / "other.npz")


def test_the_weights_are_small_and_their_record_names_them() -> None:
    from hashlib import sha256

    assert WEIGHTS.stat().st_size <= 6_000_000
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    assert record["weights"]["sha256"] == sha256(WEIGHTS.read_bytes()).hexdigest()
    assert record["teacher"]["sha256"].startswith("53aa5117")


def test_cost_grows_no_faster_than_length(scorer: LexicalScorer) -> None:
    def seconds(paragraphs: int) -> float:
        words = [f"word{number % 997} of sentence {number}." for number in range(paragraphs * 40)]
        text = segment("\n\n".join(" ".join(words[at : at + 40]) for at in range(0, len(words), 40)))
        best = float("inf")
        for _ in range(3):
            started = time.process_time()
            scorer.score("which sentence has word77", text)
            best = min(best, time.process_time() - started)
        return best

    seconds(5)
    assert seconds(160) < 20 * max(seconds(20), 0.005)
