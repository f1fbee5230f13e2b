"""What counts as kept."""

from __future__ import annotations

import pytest

from benchmarks.quality.metrics import evidence_kept, holds_answer, normalise, pair_kept, parses

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
    [(CONTEXT, 1.0), ("", 0.0), (TURNS[0], 11 / 22), (TURNS[1], 0.0), ("we should buy the blue", 5 / 22)],
)
def test_evidence_counts_tokens_in_runs_that_the_output_has(output: str, share: float) -> None:
    assert evidence_kept(CONTEXT, [FIRST, LAST], output) == pytest.approx(share)


def test_a_short_turn_counts_when_its_whole_line_is_there() -> None:
    span = (CONTEXT.index("B:"), CONTEXT.index("B:") + len("B: yes"))
    assert evidence_kept(CONTEXT, [span], "A: x\nB: yes") == 1.0
    assert evidence_kept(CONTEXT, [span], "A: yes") == 0.0


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
