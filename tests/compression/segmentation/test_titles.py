"""Documents under a title each, where the name or the text is of an unusual shape."""

from __future__ import annotations

import pytest

from compression.segmentation import segment
from compression.source.units import Segmentation

LONG = "It was built in 1912 by the harbour board and has been open to everybody who likes to walk there ever since."
USUAL = f"Old Pier\n{LONG}\n\nNew Pier\n{LONG}\n\nFish Market\n{LONG}"


def titles(source: str) -> list[str | None]:
    found = segment(source)
    return [None if document.title is None else found.text(document.title) for document in found.documents]


@pytest.mark.parametrize(
    "document",
    [
        "Peter Levin\nPeter Levin is an American director.",
        "S. P. L. Sorensen\nThe chemist lived in Copenhagen for most of his life.",
        f"Fireman Sam: The Great Fire\n{LONG}",
        f"Nottingham F.C.\n{LONG}",
        f"Help!\n{LONG}",
        "Ian Barry (director)\nIan Barry is an Australian director.",
    ],
)
def test_a_title_of_unusual_shape_is_one_where_the_others_have_theirs(document: str) -> None:
    found = titles(f"{USUAL}\n\n{document}\n\nLight House\n{LONG}")
    assert found == ["Old Pier", "New Pier", "Fish Market", document.split("\n")[0], "Light House"]


def test_a_further_paragraph_of_a_document_is_none_of_its_own() -> None:
    wrapped = "The second paragraph was wrapped by somebody's editor in the\nmiddle of its only sentence."
    assert titles(f"{USUAL}\n\n{LONG}\n\n{wrapped}") == ["Old Pier", "New Pier", "Fish Market"]


def test_wrapped_prose_has_no_titles() -> None:
    text = "Somebody told the whole story in lines of some width, as\neditors do. It goes on here.\n\n" * 4
    found: Segmentation = segment(text)
    assert len(found.documents) == 1
