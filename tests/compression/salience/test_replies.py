"""A question of a dialogue brings the turn that answers it."""

# ruff: noqa: RUF001 - question marks of other scripts are intended
from __future__ import annotations

import pytest

from compression.salience import with_replies
from compression.segmentation import segment

FILLER = "".join(f"Ann: We spoke of the weather, part {n}.\nBen: So we did, part {n}.\n" for n in range(6))


def raised(dialogue: str, asked: str, answer: str) -> bool:
    """Whether the score of `answer` rises with that of `asked`."""
    text = segment(FILLER + dialogue + FILLER)
    assert {"turn"} == {unit.kind for unit in text.units}
    scores = [0.8 if asked in unit else 0.01 for unit in text.texts()]
    found = with_replies(text, scores)
    at = next(at for at, unit in enumerate(text.texts()) if answer in unit)
    others = [(a, b) for n, (a, b) in enumerate(zip(scores, found, strict=True)) if n != at]
    assert all(before == after for before, after in others)
    return found[at] > 0.3


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Where did you leave the keys?", "On the shelf."), ("钥匙放在哪里？", "在架子上。"),
        ("أين تركت المفاتيح؟", "على الرف."), ("“Where are the keys?”", "There."),
    ],
)  # fmt: skip
def test_a_question_raises_its_answer(question: str, answer: str) -> None:
    assert raised(f"Ann: {question}\nBen: {answer}\n", question, answer)


def test_what_the_same_one_says_next_is_no_answer() -> None:
    assert not raised("Ann: Where are they?\nAnn: I must go.\n", "Where are they", "I must go")


def test_what_follows_a_statement_is_no_answer() -> None:
    assert not raised("Ann: They are there.\nBen: I must go.\n", "They are there", "I must go")
