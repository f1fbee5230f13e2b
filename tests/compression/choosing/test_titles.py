"""A document's title comes with what is kept of it, unless that says it."""

from __future__ import annotations

from compression.choosing.selection import Selection, SelectionSettings
from compression.segmentation import segment

SOURCE = (
    "# Jonas Brandt\nJonas Brandt was a shipowner in the north. He was the son of a sailmaker called Karl.\n\n"
    "# Anna Keller\nAnna Keller was a painter in the south. She was the daughter of a baker called Emil."
)


def kept_with(wanted: str, settings: SelectionSettings | None = None) -> list[str]:
    text = segment(SOURCE)
    costs = [len(text.text(unit).split()) for unit in range(len(text.units))]
    selection = Selection(text, [0.0] * len(text.units), costs, settings or SelectionSettings())
    selection.add(next(unit for unit in range(len(text.units)) if text.text(unit) == wanted))
    return [text.text(unit) for unit in selection.kept()]


def test_a_sentence_that_names_nobody_brings_its_title() -> None:
    wanted = "He was the son of a sailmaker called Karl."
    assert kept_with(wanted) == ["# Jonas Brandt", wanted]


def test_a_sentence_that_says_its_title_does_not_pay_for_it() -> None:
    wanted = "Jonas Brandt was a shipowner in the north."
    assert kept_with(wanted) == [wanted]


def test_titles_stay_away_where_nobody_wants_them() -> None:
    wanted = "He was the son of a sailmaker called Karl."
    assert kept_with(wanted, SelectionSettings(keep_titles=False)) == [wanted]


def test_the_estimate_counts_a_title_once_and_only_where_it_comes() -> None:
    text = segment(SOURCE)
    costs = [len(text.text(unit).split()) for unit in range(len(text.units))]
    selection = Selection(text, [0.0] * len(text.units), costs, SelectionSettings())
    title, first, second = 0, 1, 2
    assert selection.price(first) == costs[first]
    assert selection.price(second) == costs[second] + costs[title]
    selection.add(second)
    assert selection.cost == costs[second] + costs[title]
