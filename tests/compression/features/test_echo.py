"""What only repeats the query is no evidence for its answer."""

from __future__ import annotations

import json

import numpy as np
import pytest

from compression.features.matching import echoes
from compression.features.words import lex
from compression.scorers.lexical import LexicalScorer
from compression.segmentation import segment

QUERY = "Please change the delivery of order 5512 to the harbour office on Friday."
HISTORY = [
    {"role": "user", "content": "Hello, I have a question about my parcel."},
    {"role": "assistant", "content": "Order 5512 goes to 14 Mole Street. Order 9911 waits in Bergen."},
    {"role": "user", "content": QUERY},
]


def echoed(query: str, source: str) -> list[str]:
    text = segment(source)
    return [text.text(int(unit)) for unit in np.flatnonzero(echoes(query, text))]


@pytest.mark.parametrize("indent", [None, 1])
def test_a_message_that_is_the_query_is_an_echo_wherever_it_stands(indent: int | None) -> None:
    follows = [{"role": "assistant", "content": "One moment, I look it up in the list of deliveries."}]
    assert echoed(QUERY, json.dumps([*HISTORY, *follows], indent=indent)) == [QUERY]


def test_a_turn_that_is_the_query_is_an_echo_for_all_its_name() -> None:
    lines = [
        "Ann: Where is it?",
        "Bob: In the yard.",
        f"Ann: {QUERY}",
        "Bob: I will see what I can do about it.",
    ]
    assert echoed(QUERY, "\n".join(lines)) == [f"Ann: {QUERY}"]


def test_a_source_that_ends_with_the_query_ends_with_an_echo() -> None:
    assert echoed(QUERY, f"The office is closed. The harbour is open.\n\n{QUERY}") == [QUERY]


def test_a_question_that_heads_its_answer_is_none() -> None:
    source = (
        f"{QUERY}\nThe desk does that until Thursday noon.\n\nWhen do you open?\nAt eight in the morning."
    )
    assert echoed(QUERY, source) == []


@pytest.mark.parametrize("query", ["", "ok", "Yes, please.", "the"])
def test_a_short_query_has_no_echo(query: str) -> None:
    assert echoed(query, json.dumps([{"role": "user", "content": "Yes, please."}, *HISTORY])) == []


def test_muted_units_keep_their_places_and_have_no_words() -> None:
    text = segment("One red house. Two green ships. Three blue birds.")
    muted = np.array([False, True, False])
    words, heard = lex(text), lex(text).without(muted)
    assert (heard.last - heard.first).tolist() == [3, 0, 3]
    assert [heard.spellings[word] for word in heard.ids] == ["One", "red", "house", "Three", "blue", "birds"]
    assert len(words.first) == len(heard.first)


def test_the_answer_is_found_beside_an_echo() -> None:
    scorer = LexicalScorer.load()
    query = "To which street does order 5512 go at the moment, and who takes it there?"
    source = json.dumps([*HISTORY[:2], {"role": "user", "content": query}])
    text = segment(source)
    scores = scorer.score(query, text)
    content = [unit for unit in range(len(text.units)) if text.units[unit].kind == "sentence"]
    best = max(content, key=lambda unit: scores[unit])
    assert text.text(best) == "Order 5512 goes to 14 Mole Street."
