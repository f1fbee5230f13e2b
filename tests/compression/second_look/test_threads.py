"""Of several conversations in one text, the turns of the one that the query names come first."""

# ruff: noqa: RUF001 - punctuation of other scripts is intended
from __future__ import annotations

from typing import Any

import pytest

from compression.second_look import threads
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


@pytest.mark.parametrize(
    ("name", "other"), [("Ann", "cannot"), ("4001", "94001"), ("Blue Door", "Blue doorway")]
)
def test_a_name_is_no_part_of_another_word(name: str, other: str) -> None:
    source = TEXT.replace("Ann:", "Cy:").replace("Basilico", other).replace("Baci Bistro", name)
    found = raised(source, f"the phone number of {name}")
    assert "Ben: It is 555-0104." in found and "Ben: It is 555-0100." not in found


def test_the_text_is_read_once_whatever_the_query_names(monkeypatch: pytest.MonkeyPatch) -> None:
    text = segment("\n".join(f"a: b{number} {'e' * 60}\nc: d\n" for number in range(14_000)))
    rows = 0

    class Counted(list[str]):
        def __getitem__(self, at: Any) -> Any:
            nonlocal rows
            found = super().__getitem__(at)
            rows += len(found) if isinstance(at, slice) else 1
            return found

    words_of = threads._words
    monkeypatch.setattr(threads, "_words", lambda each: Counted(words_of(each)))
    words = len(words_of(text.source))
    assert len(text.source) > 1_000_000
    scores = [0.1] * len(text.units)
    for query in ("b77", " ".join(f"b{number}" for number in range(100, 14_000))):
        rows = 0
        found = with_threads(text, scores, query)
        assert max(found) > 0.1 and rows <= 3 * words
