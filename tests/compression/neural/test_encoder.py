"""The encoder with the real weights of all-MiniLM-L6-v2, and a cross-encoder with random ones."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from compression.neural.batching import NeuralService, QueryTooLong, Windows
from compression.neural.encoder import Encoder
from compression.neural.networks import Placement
from compression.source.units import Document, Segmentation, Unit

SENTENCES = (
    "The Eiffel Tower is 330 metres tall.",
    "Bananas are rich in potassium.",
    "Paris is the capital of France.",
    "It was finished in 1889 after two years of work.",
)
QUERY = "How high is the Eiffel Tower?"


@pytest.fixture(scope="module")
def encoder(minilm: Path) -> Encoder:
    return Encoder.load(str(minilm), Placement())


def segmentation(*sentences: str, title: str | None = None) -> Segmentation:
    parts = ([title] if title else []) + list(sentences)
    source, units, at = "\n".join(parts), [], 0
    for part in parts:
        units.append(Unit(at, at + len(part), "sentence", 0, 0))
        at += len(part) + 1
    return Segmentation(
        source, tuple(units), (Document(0, len(source), (0, len(units)), 0 if title else None),)
    )


def test_cosines_are_those_of_the_published_recipe(encoder: Encoder, minilm: Path) -> None:
    """Mean pooling and normalisation, by transformers alone, one text at a time."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(minilm), AutoModel.from_pretrained(minilm).eval()

    def embed(text: str) -> np.ndarray[Any, Any]:
        with torch.inference_mode():
            states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        vector = states.mean(0).numpy()
        return np.asarray(vector / np.linalg.norm(vector))

    expected = [float(embed(QUERY) @ embed(sentence)) for sentence in SENTENCES]
    np.testing.assert_allclose(encoder.compare(QUERY, SENTENCES), expected, atol=1e-5)


def test_the_sentence_that_answers_scores_highest(encoder: Encoder) -> None:
    scores = encoder.score(QUERY, segmentation(*SENTENCES))
    assert scores.index(max(scores)) == 0 and all(0 <= score <= 1 for score in scores)


def test_a_sentence_is_seen_with_its_title(encoder: Encoder) -> None:
    bare = encoder.score(QUERY, segmentation(*SENTENCES[1:]))[-1]
    titled = encoder.score(QUERY, segmentation(*SENTENCES[1:], title="Eiffel Tower"))[-1]
    assert titled > bare + 0.1


def test_the_answer_in_a_text_longer_than_a_window_is_seen(encoder: Encoder) -> None:
    long = "Bananas are rich in potassium. " * 100 + SENTENCES[0]
    found, without = encoder.compare(QUERY, [long, "Bananas are rich in potassium. " * 100])
    assert found > without + 0.2


def test_a_unit_without_a_word_scores_nothing_and_costs_nothing(encoder: Encoder) -> None:
    text = segmentation(SENTENCES[0], "---", "}")
    assert encoder.score(QUERY, text)[1:] == [0.0, 0.0]
    assert len(encoder.score_job(QUERY, text).windows) == 2


def test_no_units_give_no_scores(encoder: Encoder) -> None:
    assert encoder.score(QUERY, Segmentation("", (), ())) == []


async def test_through_the_service_scores_are_the_same(encoder: Encoder) -> None:
    service = NeuralService(encoder.network, token_budget=512, max_waiting_tokens=100_000)
    text = segmentation(*SENTENCES)
    found = await asyncio.gather(*(service.run(encoder.score_job(QUERY, text)) for _ in range(4)))
    await service.close()
    for scores in found:
        np.testing.assert_allclose(scores, encoder.score(QUERY, text), atol=1e-5)


@pytest.fixture(scope="module")
def cross_encoder(cross_encoder_checkpoint: Path) -> Encoder:
    return Encoder.load(str(cross_encoder_checkpoint), Placement(), windows=Windows(64))


def test_a_cross_encoder_gives_the_probability_of_the_pair(cross_encoder: Encoder) -> None:
    network: Any = cross_encoder.network
    encoded = cross_encoder.tokenizer.backend.encode("the plan", "the budget of the council")
    with torch.inference_mode():
        logit = network.model(
            input_ids=torch.tensor([encoded.ids]), token_type_ids=torch.tensor([encoded.type_ids])
        ).logits[0, 0]
    found = cross_encoder.compare("the plan", ["the budget of the council"])
    np.testing.assert_allclose(found, [torch.sigmoid(logit).item()], atol=1e-5)


def test_a_query_without_room_for_text_beside_it_is_refused(cross_encoder: Encoder) -> None:
    with pytest.raises(QueryTooLong, match="more than the 32"):
        cross_encoder.compare("the budget " * 40, ["text"])
