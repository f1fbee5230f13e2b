"""The second look: evidence that leads to evidence, and what an agent will have to repeat."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compression.features.matching import Query
from compression.features.matrix import prepare
from compression.scorers.lexical import LexicalScorer
from compression.second_look.links import find_names, naming_power, shared, strongest
from compression.second_look.rounds import SecondLook
from compression.segmentation import segment


@pytest.fixture(scope="module")
def scorer() -> LexicalScorer:
    return LexicalScorer.load()


TITLES = (
    ("Ostmole Line", "The Ostmole Line is a ferry company in the north. It was founded by Jonas Brandt."),
    ("Jonas Brandt", "Jonas Brandt was a shipowner. He was the son of the sailmaker Karl Brandt."),
    ("Vesper Line", "The Vesper Line is a railway company in the south. It runs forty trains a day."),
    ("Anna Keller", "Anna Keller was a painter. She was the daughter of the baker Emil Keller."),
    ("Peter Holm", "Peter Holm was a teacher. He was the son of the smith Erik Holm."),
    ("Lena Voss", "Lena Voss is a chemist. Her father was a miner in the west of the country."),
)
QUESTION = "Who was the father of the founder of the Ostmole Line?"


def ranking(scorer: LexicalScorer, source: str) -> list[str]:
    text = segment(source)
    scores = scorer.score(QUESTION, text)
    order = sorted(range(len(text.units)), key=lambda unit: -scores[unit])
    return [text.text(unit) for unit in order if text.units[unit].kind == "sentence"]


@pytest.mark.parametrize("with_titles", [True, False])
@pytest.mark.parametrize("shift", range(0, 6, 2))
def test_what_a_strong_unit_names_is_lifted(scorer: LexicalScorer, with_titles: bool, shift: int) -> None:
    documents = [*TITLES[shift:], *TITLES[:shift]]
    source = "\n\n".join(f"{title}\n{body}" if with_titles else body for title, body in documents)
    best = ranking(scorer, source)[:4]
    assert "He was the son of the sailmaker Karl Brandt." in best
    assert "It was founded by Jonas Brandt." in best


def test_the_second_look_tells_a_linked_paragraph_from_one_that_only_sounds_alike(
    scorer: LexicalScorer,
) -> None:
    order = ranking(scorer, "\n\n".join(f"{title}\n{body}" for title, body in TITLES))
    linked = order.index("He was the son of the sailmaker Karl Brandt.")
    assert linked < order.index("She was the daughter of the baker Emil Keller.")
    assert linked < order.index("He was the son of the smith Erik Holm.")


def test_other_features_than_the_weights_were_trained_on_are_refused(scorer: LexicalScorer) -> None:
    text = segment("One thing. Another thing.")
    glance = scorer.glance("thing", text)
    odd = LexicalScorer(
        scorer.embeddings,
        scorer.network,
        scorer.names,
        SecondLook(scorer.second.rounds, scorer.second.labels[:-1]),
    )
    with pytest.raises(ValueError, match="trained on other features"):
        odd.look_again(glance, glance.logits)


def test_missing_weights_say_how_to_make_them(tmp_path: object) -> None:
    with pytest.raises(FileNotFoundError, match=r"python -m benchmarks\.training\.second_look"):
        SecondLook.load(tmp_path / "none.npz")  # type: ignore[operator]


@pytest.mark.parametrize(
    ("word", "least", "most"),
    [
        ("Brandt", 0.9, 1.1),
        ("HAT083", 1.1, 1.3),
        ("the", 0, 0),
        ("of", 0, 0),
        ("ferry", 0.1, 0.5),
        ("東京", 0.5, 1),
    ],
)
def test_how_far_a_word_names_something(word: str, least: float, most: float) -> None:
    assert least <= naming_power(word) <= most


WORDS = st.sampled_from(["Alpha", "Beta", "gamma", "delta", "R2D2", "Ωmega", "4711", "the", "东京"])
TEXTS = st.lists(st.lists(WORDS, min_size=1, max_size=6).map(" ".join), min_size=2, max_size=8)


@given(TEXTS)
def test_shared_names_are_those_that_both_units_have(lines: list[str]) -> None:
    scorer = LexicalScorer.load()
    text = segment("\n\n".join(f"{line}." for line in lines))
    context = prepare(text, scorer.embeddings)
    names = find_names(context, Query.of("what"))
    height = len(text.units)
    have = [set(names.terms[names.first[unit] : names.first[unit + 1]].tolist()) for unit in range(height)]
    strong = np.arange(min(3, height))
    found = shared(names, strong, height)
    for unit in range(height):
        for column, other in enumerate(strong.tolist()):
            expected = sum(names.weights[term] for term in have[unit] & have[other])
            assert found[column, unit] == pytest.approx(float(expected), abs=1e-4)


def test_words_of_the_query_link_nothing(scorer: LexicalScorer) -> None:
    text = segment("Brandt met Keller.\n\nBrandt met Voss.")
    context = prepare(text, scorer.embeddings)
    names = find_names(context, Query.of("Who met Brandt?"))
    units = np.arange(len(text.units))
    assert not shared(names, units[:1], len(units))[:, 1:].any()


def test_the_strongest_are_units_and_no_titles() -> None:
    strong = strongest(np.array([5.0, 1.0, 2.0], np.float32), np.array([True, False, False]))
    assert strong.units.tolist() == [1, 2]
    assert strong.strength.max() == 1


def test_an_agent_keeps_what_it_has_to_repeat(scorer: LexicalScorer) -> None:
    """The record that the user chose, of forty that the tool gave."""
    flights = [
        {
            "number": f"XK{200 + n}",
            "from": "LIS",
            "to": "OSL",
            "departs": f"{6 + n % 14:02d}:15",
            "seats": n % 9 + 1,
        }
        for n in range(40)
    ]
    source = "\n\n".join(
        [
            "User: Which flights are there to Oslo on Friday?",
            "Tool: " + json.dumps(flights),
            "Assistant: There are forty, from 06:15 on. XK217 leaves at 09:15.",
            "User: XK217 suits me. Please book it.",
        ]
    )
    text = segment(source)
    scores = scorer.score("XK217 suits me. Please book it.", text)
    records = [unit for unit in range(len(text.units)) if "XK217" in text.text(unit)]
    others = [
        unit
        for unit in range(len(text.units))
        if "XK203" in text.text(unit) and "XK217" not in text.text(unit)
    ]
    if others:
        assert max(scores[unit] for unit in records) > max(scores[unit] for unit in others)
