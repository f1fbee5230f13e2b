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


def test_sections_of_a_document_in_markdown_are_documents_and_no_turns() -> None:
    source = (
        "Semver\n======\n\n## Install\n\nRun the command below in a folder of your own.\n\n"
        "## Ranges\n\nA range is a set of comparators.\n\n### Example\n\nThe range below has one comparator.\n\n"
        "## Functions\n\nAll of them take a version.\n\n### Example\n\nThe call below gives a version back.\n"
    )
    text = segment(source)
    titles = [text.text(document.title) for document in text.documents if document.title is not None]
    assert titles == ["## Install", "## Ranges", "### Example", "## Functions", "### Example"]
    assert not any(unit.kind == "speaker" for unit in text.units)


def test_headings_of_one_level_that_come_back_are_turns() -> None:
    source = "".join(
        f"## {name}\n\nThis is said in turn {turn}.\n\n"
        for turn in range(3)
        for name in ("User", "Assistant")
    )
    assert sum(unit.kind == "speaker" for unit in segment(source).units) == 6


NAMES = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")
ANSWERS = {
    "of the same level": "Here is how.\n\n{1} Install {0}\n\nIt takes a minute.\n\n{1} Use {0}\n\nCall it.\n\n"
    "{1} Test {0}\n\nThe tests pass.",
    "above": "# The {0}\n\nIt is a letter. It is Greek.",
    "above, under a line": "Here is how.\n\n# Install {0}\n\nIt takes a minute.",
    "below": "Here is how.\n\n##### Install\n\nIt takes a minute.\n\n##### Use\n\nCall {0}.",
    "none": "It is a letter, {0}.",
}


@pytest.mark.parametrize("title", ["", "# Chat\n\n", "# Chat\n\n# Log\n\n"])
@pytest.mark.parametrize(
    ("asked", "said"), [("## User", "## Assistant"), ("### Instruction:", "### Response:")]
)
@pytest.mark.parametrize("answer", ANSWERS)
def test_who_speaks_is_told_whatever_headings_the_answers_have(
    answer: str, asked: str, said: str, title: str
) -> None:
    text = segment(
        title
        + "".join(
            f"{asked}\n\nWhat is {name}?\n\n{said}\n\n"
            + ANSWERS[answer].format(name, asked.split(" ")[0])
            + "\n\n"
            for name in NAMES
        )
    )
    heads = [text.text(frame.open) for frame in text.frames if frame.kind == "turn"]
    assert heads == [asked, said] * 6


VERSIONS = {
    "numbers": "## [1.{}.0] - 2024-05-01\n\n",
    "short numbers": "## v1.{}\n\n",
    "names": "## {1}\n\n",
    "names and text": "## {1}\n\nOf this letter nothing else is known.\n\n",
    "names of the same level": "### {1}\n\nOf this letter nothing else is known.\n\n### Story of {1}\n\nOld.\n\n",
}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_headings_beneath_another_each_time_are_of_a_document(version: str) -> None:
    text = segment(
        "# Changes\n\nAll of them.\n\n"
        + "".join(
            VERSIONS[version].format(number, name)
            + f"### Added\n\n- The thing {name}.\n- More.\n\n### Fixed\n\n- A crash of {name}.\n\n"
            for number, name in enumerate(NAMES)
        )
    )
    assert not any(unit.kind in ("speaker", "turn") for unit in text.units)


def test_the_rounds_of_a_dialogue_may_be_counted() -> None:
    text = segment(
        "".join(
            f"# Round {number}\n\n## User\n\nWhat is {name}?\n\n## Assistant\n\nIt is a letter.\n\n"
            for number, name in enumerate(NAMES)
        )
    )
    heads = {text.text(frame.open) for frame in text.frames if frame.kind == "turn"}
    assert {"## User", "## Assistant"} <= heads


COMMENTED = {
    "SQL": "## step {0}\nSELECT name, price FROM boats_{0} WHERE berth = {0} ORDER BY price;\n\n",
    "ini": "## The options of {0}.\n[boats-{0}]\nport = 80{0}\nhost = boats.example\n\n",
    "two comments": "## The options of {0}.\n## Restart it when they are changed.\nport = 80{0}\nlog = on\n\n",
    "properties": "### Pier {0}\npier.{0}.name = Pier {0}\npier.{0}.url = https://pier.example/{0}\n\n",
}


@pytest.mark.parametrize("language", COMMENTED)
def test_comments_that_look_like_headings_part_no_documents(language: str) -> None:
    text = segment("".join(COMMENTED[language].format(number) for number in range(20)))
    assert len(text.documents) == 1


@pytest.mark.parametrize(
    "section",
    [
        "## Pier {0}\nIt was built in 19{0}.\n\n",
        "## Pier {0}\n建于19{0}年。很漂亮。\n\n",
        "## Pier {0}\n\n- 19{0}\n\n",
    ],
)
def test_sections_have_an_empty_line_or_prose_under_their_heading(section: str) -> None:
    found = titles("".join(section.format(number) for number in range(10, 30)))
    assert found == [f"## Pier {number}" for number in range(10, 30)]
