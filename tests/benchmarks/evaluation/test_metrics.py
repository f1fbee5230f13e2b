"""What counts as kept."""

from __future__ import annotations

import pytest

from benchmarks.evaluation.case import Case
from benchmarks.evaluation.metrics import holds_answer, pair_kept, parses, place
from benchmarks.evaluation.suites.families import meeting
from compression.tuning.row import normalise

TURNS = [
    "A: we should buy the blue one for the office",
    "B: yes",
    "C: and a second one for the other room too",
]
CONTEXT = "\n".join(TURNS)
FIRST = (0, len(TURNS[0]))
LAST = (CONTEXT.index("C:"), len(CONTEXT))


@pytest.mark.parametrize(
    ("text", "answer", "held"),
    [
        ("It was Barack Obama.", "barack obama", True),
        ("by the U.S. Army", "US army", True),
        ("the Beatles", "The Beatles", True),
        ("Barack H. Obama", "Barack Obama", False),
        ("价格是 308分", "308", True),
        ("Is it?", "?", True),
    ],
)
def test_answers_are_compared_without_case_punctuation_and_articles(
    text: str, answer: str, held: bool
) -> None:
    assert holds_answer(text, [answer]) is held


def test_normalising_leaves_words() -> None:
    assert normalise("The  quick, brown fox's a/an den") == "quick brown foxs aan den"


@pytest.mark.parametrize(
    ("output", "share"),
    [
        (CONTEXT, 1.0),
        ("", 0.0),
        (TURNS[0], 11 / 22),
        (TURNS[1], 0.0),
        ("we should buy the blue", 5 / 22),
        ("A: we should buy one for the office", 9 / 22),
        ("nothing of the kind\nC: and a second one", 6 / 22),
    ],
)
def test_evidence_counts_the_tokens_that_the_output_has(output: str, share: float) -> None:
    case = Case("qmsum", "qmsum-0", "What?", CONTEXT, (), evidence=(FIRST, LAST))
    assert meeting(case, output)["evidence"] == pytest.approx(share)


def test_a_line_that_stands_twice_counts_once_and_none_is_lost() -> None:
    context = "A: yes\nB: no\nA: yes\nB: maybe"
    assert place(context, "A: yes\nB: maybe") == [3, 0, 0, 3]
    assert place(context, "B: no\nA: yes") == [0, 3, 3, 0]
    assert place(context, "A: yes\nA: yes") == [3, 0, 3, 0]


def test_sentences_of_one_turn_count_together_on_one_line_or_on_many() -> None:
    context = "A: one two. Four five. Seven eight.\nB: Seven eight."
    assert place(context, "A: one two. Seven eight.") == [8, 0]
    assert place(context, "A: one two.\nSeven eight.\nSeven eight.") == [8, 3]


@pytest.mark.parametrize(
    ("output", "kept"),
    [
        ('{"k": "v"}', True),
        ('{"k": "w"}', False),
        ('"k": "v"', False),
        ('{"k": "v"', False),
        ('["k"]', False),
    ],
)
def test_a_pair_is_kept_where_the_json_still_says_so(output: str, kept: bool) -> None:
    assert pair_kept(output, "k", "v") is kept


def test_json_parses_or_does_not() -> None:
    assert parses("{}")
    assert not parses("{")
