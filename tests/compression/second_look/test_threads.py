"""Of several conversations in one text, the turns of the one that the query names come first."""

# ruff: noqa: RUF001 - punctuation of other scripts is intended
from __future__ import annotations

import pytest

from compression.second_look.threads import with_threads
from compression.segmentation import segment


def ticket(name: str, number: int) -> str:
    return (
        f"Ann: I look for a place to eat, number {number}.\nBen: {name} is open.\n"
        f"Ann: What is the phone number?\nBen: It is 555-01{number:02}.\n"
    )


NAMES = ("Basilico", "Thai Time", "Yet Wah", "Sushi To Dai For", "Baci Bistro", "La Finestra")
TEXT = "\n".join(ticket(name, number) for number, name in enumerate(NAMES))


def raised(source: str, query: str) -> set[str]:
    text = segment(source)
    found = with_threads(text, [0.1] * len(text.units), query)
    return {unit for unit, score in zip(text.texts(), found, strict=True) if score == max(found) > 0.1}


@pytest.mark.parametrize("number", range(len(NAMES)))
def test_the_turns_of_the_named_conversation_are_raised_all_of_them(number: int) -> None:
    found = raised(TEXT, f"What is the phone number of {NAMES[number]}?")
    assert found == set(ticket(NAMES[number], number).splitlines())


def test_a_name_without_capitals_and_one_of_a_script_without_spaces_is_found() -> None:
    assert "Ben: It is 555-0101." in raised(TEXT, "the phone number of thai time")
    chinese = TEXT.replace("Yet Wah", "泰式时光餐厅")
    assert "Ben: It is 555-0102." in raised(chinese, "泰式时光餐厅的电话是多少？")


@pytest.mark.parametrize(
    "source",
    [TEXT.replace("\n\n", "\n"), "\n".join(ticket(name, 1) for name in NAMES[:2]), NAMES[1] + ".\n\n" * 9],
    ids=["one conversation", "two conversations", "no conversation"],
)
def test_other_texts_are_left_as_they_are(source: str) -> None:
    assert raised(source, "the phone number of Thai Time") == set()


def test_what_every_conversation_has_raises_none() -> None:
    assert raised(TEXT, "What is the phone number?") == set()
