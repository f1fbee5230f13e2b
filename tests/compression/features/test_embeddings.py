"""Word pieces and the int8 table."""

from __future__ import annotations

import numpy as np
import pytest

from compression.features.meaning import (
    UNKNOWN,
    PieceSplitter,
    TokenEmbeddings,
    normalised,
    quantise,
)

VOCABULARY = ["play", "##ing", "##s", "un", "##play", "##able", "東"]


@pytest.fixture
def splitter() -> PieceSplitter:
    return PieceSplitter({piece: number for number, piece in enumerate(VOCABULARY)})


@pytest.mark.parametrize(
    ("word", "pieces"),
    [
        ("play", (0,)),
        ("playing", (0, 1)),
        ("plays", (0, 2)),
        ("unplayable", (3, 4, 5)),
        ("東", (6,)),
        ("xyz", (UNKNOWN,)),
        ("playx", (UNKNOWN,)),
    ],
)
def test_a_word_is_split_into_the_longest_pieces_first(
    splitter: PieceSplitter, word: str, pieces: tuple[int, ...]
) -> None:
    assert splitter.split(word) == pieces
    assert splitter.split(word) == pieces, "a remembered word is split alike"


def test_rows_stand_for_vectors_of_length_one_that_point_as_the_given_ones() -> None:
    vectors = np.random.default_rng(0).normal(size=(50, 128)).astype(np.float32)
    rows, scales = quantise(vectors)
    table = TokenEmbeddings.build([f"w{n}" for n in range(50)], rows, scales, np.ones(50, np.float32))
    found = table.vectors(np.arange(50))
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-3)
    assert ((found * normalised(vectors)).sum(axis=1) > 0.999).all()


def test_a_text_without_a_direction_stays_zero() -> None:
    assert (normalised(np.zeros((2, 4), np.float32)) == 0).all()


def test_a_word_in_many_pieces_counts_whole_in_a_query_and_a_frequent_one_by_its_weight() -> None:
    weights = np.linspace(0.1, 0.7, len(VOCABULARY)).astype(np.float32)
    rows, scales = quantise(np.eye(len(VOCABULARY), dtype=np.float32))
    table = TokenEmbeddings.build(VOCABULARY, rows, scales, weights)
    assert table.word_weight("play") == pytest.approx(0.1)
    assert table.word_weight("playing") == 1.0
    assert table.whole_share(["play", "playing", "xyz", "東"]) == 0.5
